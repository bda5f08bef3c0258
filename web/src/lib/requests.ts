import { call, jobPath, type Operation } from './api';
import { notices } from './notices.svelte';
import { said } from './api';
import type { Action } from './states';

/** Asks something of a job, and says how it ended. */
export async function ask(action: Action, job: string): Promise<boolean> {
  try {
    const operation = await send(action, job);
    if (operation?.state === 'failed') {
      notices.add('error', `${job}: ${operation.problem?.detail ?? 'it failed'}`);
      return false;
    }
    notices.add('done', `${job}: ${doneWords(action, operation)}`);
    return true;
  } catch (error) {
    notices.add('error', `${job}: ${said(error)}`);
    return false;
  }
}

function send(action: Action, job: string): Promise<Operation | undefined> {
  switch (action) {
    case 'cancel':
      return call('POST', jobPath(job, '/stop'), { how: 'cancel' });
    case 'snapshot':
      return call('POST', jobPath(job, '/snapshots'));
    case 'delete':
      return call('DELETE', jobPath(job));
    case 'stop':
      return call('POST', jobPath(job, '/stop'), {});
    case 'start':
      return call('POST', jobPath(job, '/start'), {});
    default:
      return call('POST', jobPath(job, `/${action}`));
  }
}

function doneWords(action: Action, operation: Operation | undefined): string {
  if (operation?.state === 'running') return `${action} is under way`;
  if (action === 'snapshot') return `snapshot ${operation?.snapshot ?? ''} is kept`;
  if (action === 'delete') return 'deleted';
  return operation?.job_state ?? 'done';
}

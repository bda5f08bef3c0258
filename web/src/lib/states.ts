import type { JobState } from './api';

/** How urgent a state is: failed jobs come first. */
const URGENCY: Record<string, number> = {
  failed: 0,
  undecided: 1,
  restarting: 2,
  stopping: 3,
  starting: 3,
  planning: 3,
  paused: 4,
  running: 5,
  stopped: 6,
  finished: 7,
  draft: 8,
};

export const urgency = (state: string) => URGENCY[state] ?? 9;

export type Action = 'start' | 'stop' | 'cancel' | 'pause' | 'resume' | 'restart' | 'snapshot' | 'delete';

/** What can be asked of a job in a state. */
export function actionsOf(state: JobState | string): Action[] {
  switch (state) {
    case 'running':
      return ['stop', 'pause', 'restart', 'snapshot'];
    case 'paused':
      return ['stop', 'resume', 'restart'];
    case 'stopping':
      return ['cancel'];
    case 'planning':
    case 'starting':
    case 'restarting':
      return ['stop', 'cancel'];
    case 'undecided':
      return ['stop'];
    case 'draft':
    case 'stopped':
    case 'finished':
    case 'failed':
      return ['start', 'delete'];
    default:
      return [];
  }
}

export const ACTION_WORDS: Record<Action, string> = {
  start: 'Start',
  stop: 'Stop',
  cancel: 'Cut off',
  pause: 'Pause',
  resume: 'Resume',
  restart: 'Restart',
  snapshot: 'Take snapshot',
  delete: 'Delete',
};

import type { EventLine, LogLine, RunLine, SnapshotView } from './api';
import type { Mark } from '../parts/Chart.svelte';

export type TimelineKind = 'state' | 'request' | 'upgrade' | 'run' | 'log';
export interface TimelineLine {
  id: string;
  atMs: number;
  kind: TimelineKind;
  level: 'info' | 'warning' | 'error';
  text: string;
  detail?: string;
  by?: string;
}

/** What happened to a job, what was asked of it and what it said, as one list, newest first. */
export function timeline(events: EventLine[], runs: RunLine[], logs: LogLine[]): TimelineLine[] {
  const all: TimelineLine[] = [];
  for (const [place, event] of events.entries()) {
    const line: TimelineLine = { id: `e${place}`, atMs: event.at_ms, kind: kindOf(event.kind), level: levelOf(event), text: event.text };
    if (event.detail) line.detail = event.detail;
    if (event.by) line.by = event.by;
    all.push(line);
  }
  for (const [place, run] of runs.entries()) {
    const restarts = run.restarts > 0 ? `, started again ${run.restarts} times` : '';
    const level = run.end === 'failed' ? 'error' : 'info';
    all.push({ id: `r${place}`, atMs: run.ended_ms, kind: 'run', level, text: `run ${run.generation} ${run.end}${restarts}` });
  }
  for (const line of logs) all.push({ id: `l${line.number}`, atMs: line.at_ms, kind: 'log', level: line.level as TimelineLine['level'], text: line.text });
  return all.sort((a, b) => b.atMs - a.atMs);
}

function kindOf(kind: string): TimelineKind {
  return kind === 'request' || kind === 'upgrade' ? kind : 'state';
}

function levelOf(event: EventLine): TimelineLine['level'] {
  if (event.text.includes('failed')) return 'error';
  return event.text.includes('restarting') || event.text.includes('undecided') ? 'warning' : 'info';
}

/** When snapshots were taken, the job began to run and upgrades were made, for a chart. */
export function marksOf(events: EventLine[], snapshots: SnapshotView[]): Mark[] {
  const taken = snapshots.flatMap(({ taken_ms }) => (taken_ms == null ? [] : [{ name: 'snapshot', atMs: taken_ms, color: '--line-strong', dash: [2, 3] }]));
  const happened = events.flatMap((event): Mark[] => {
    if (event.kind === 'upgrade') return [{ name: 'upgrade', atMs: event.at_ms, color: '--good' }];
    return event.kind === 'state' && event.text === 'running' ? [{ name: 'start', atMs: event.at_ms, color: '--bad' }] : [];
  });
  return [...taken, ...happened];
}

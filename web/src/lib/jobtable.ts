import type { JobSummary } from './api';
import { urgency } from './states';

export type Column = 'name' | 'state' | 'in' | 'out' | 'lag' | 'p99' | 'late' | 'bad' | 'kept' | 'busy' | 'snapshot';

/** What a column is sorted by; larger first, but for names. */
const VALUES: Record<Column, (job: JobSummary) => number | string> = {
  name: (job) => job.name,
  state: (job) => urgency(job.state),
  in: (job) => job.now?.in_per_s ?? -1,
  out: (job) => job.now?.out_per_s ?? -1,
  lag: (job) => job.now?.lag_s ?? -1,
  p99: (job) => job.now?.p99_s ?? -1,
  late: (job) => job.now?.late_per_min ?? -1,
  bad: (job) => job.now?.bad_per_min ?? -1,
  kept: (job) => job.state_bytes,
  busy: (job) => job.now?.busy ?? -1,
  snapshot: (job) => job.snapshot_taken_ms ?? -1,
};
const RISES: Column[] = ['name', 'state'];

export interface Sorting {
  column: Column;
  reversed: boolean;
}

/** Jobs in order; equal ones by name, so that no line jumps. */
export function sorted(jobs: JobSummary[], { column, reversed }: Sorting): JobSummary[] {
  const value = VALUES[column];
  const sign = RISES.includes(column) === reversed ? -1 : 1;
  return [...jobs].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    const order = left < right ? -1 : left > right ? 1 : 0;
    return sign * order || byName(a, b);
  });
}

function byName(a: JobSummary, b: JobSummary): number {
  return a.name < b.name ? -1 : 1;
}

/**
 * Jobs that fit each word of a filter: part of the name, `state:failed`, `tag:x`, `is:held` (a condition), or the
 * word of a state.
 */
export function filtered(jobs: JobSummary[], text: string): JobSummary[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return jobs.filter((job) => words.every((word) => fits(job, word)));
}

function fits(job: JobSummary, word: string): boolean {
  const [key, value] = word.includes(':') ? (word.split(':', 2) as [string, string]) : ['', word];
  const conditions = job.conditions ?? [];
  if (key === 'state') return job.state.startsWith(value);
  if (key === 'tag') return job.tags.some((tag) => tag.toLowerCase() === value);
  if (key === 'is') return conditions.some((one) => one.kind.startsWith(value));
  const hasTag = job.tags.some((tag) => tag.toLowerCase().includes(word));
  return job.name.toLowerCase().includes(word) || job.state === word || hasTag;
}

/** What a person should know of a job first, in a sentence. */
export function firstWords(job: JobSummary): { kind: 'bad' | 'warn' | 'quiet'; text: string } | undefined {
  if (job.state === 'failed') return { kind: 'bad', text: job.outcome?.problem?.detail ?? 'it failed' };
  const condition = job.conditions?.[0];
  if (condition) return { kind: 'warn', text: condition.text };
  if (job.snapshot_problem) return { kind: 'warn', text: job.snapshot_problem };
  if (job.waits_for) return { kind: 'quiet', text: `waits for ${job.waits_for}` };
  return undefined;
}

/** Which lines of a long list are drawn: those that are seen, and some around them. */
export function windowOf(count: number, lineHeight: number, top: number, height: number): [number, number] {
  const AROUND = 8;
  const first = Math.max(0, Math.floor(top / lineHeight) - AROUND);
  return [first, Math.min(count, Math.ceil((top + height) / lineHeight) + AROUND)];
}

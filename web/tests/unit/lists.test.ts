import { describe, expect, it } from 'vitest';
import type { JobSummary } from '../../src/lib/api';
import { diffLines } from '../../src/lib/diff';
import { filtered, firstWords, sorted, windowOf } from '../../src/lib/jobtable';
import { SseReader } from '../../src/lib/sse';
import { timeline } from '../../src/lib/timeline';
import { Trail } from '../../src/lib/trail';

const job = (name: string, state: string, more: Partial<JobSummary> = {}) =>
  ({ name, state, tags: [], state_bytes: 0, rows_in: 0, rows_out: 0, late_rows: 0, bad_rows: 0, ...more }) as unknown as JobSummary;
const names = (jobs: JobSummary[]) => jobs.map((one) => one.name);
const held = { kind: 'held', since_ms: 0, text: 'held by meters[7] for 6 m' };
const jobs = [job('b', 'running', { tags: ['Ops'] }), job('a', 'running', { conditions: [held] }), job('c', 'failed'), job('d', 'draft')];

describe('the list of jobs', () => {
  it('has failed jobs first, and equal ones by name', () => {
    expect(names(sorted(jobs, { column: 'state', reversed: false }))).toEqual(['c', 'a', 'b', 'd']);
    expect(names(sorted(jobs, { column: 'state', reversed: true }))).toEqual(['d', 'a', 'b', 'c']);
  });
  it('has the largest number first', () => {
    const now = (in_per_s: number) => ({
      in_per_s,
      out_per_s: 0,
      late_per_min: 0,
      bad_per_min: 0,
      busy: 0,
      memory_bytes: 0,
    });
    const busy = [job('x', 'running', { now: now(1) }), job('y', 'running', { now: now(9) }), job('z', 'stopped')];
    expect(names(sorted(busy, { column: 'in', reversed: false }))).toEqual(['y', 'x', 'z']);
  });
  it('is filtered by each word', () => {
    expect(names(filtered(jobs, 'state:run tag:ops'))).toEqual(['b']);
    expect(names(filtered(jobs, 'is:held'))).toEqual(['a']);
    expect(names(filtered(jobs, 'failed'))).toEqual(['c']);
    expect(names(filtered(jobs, ' '))).toEqual(['b', 'a', 'c', 'd']);
  });
  it('says of each what matters most', () => {
    expect(firstWords(jobs[1]!)).toEqual({ kind: 'warn', text: held.text });
    expect(firstWords(jobs[2]!)?.kind).toBe('bad');
    expect(firstWords(jobs[3]!)).toBeUndefined();
  });
  it('draws the lines that are seen', () => {
    expect(windowOf(1000, 36, 0, 720)).toEqual([0, 28]);
    expect(windowOf(1000, 36, 18_000, 720)).toEqual([492, 528]);
    expect(windowOf(3, 36, 0, 720)).toEqual([0, 3]);
  });
});

describe('the stream', () => {
  it('is taken apart wherever it was cut', () => {
    const text = 'event: jobs\nid: 1\ndata: {"jobs":[]}\n\nevent: dropped\ndata: {"dropped":2}\n\n';
    for (let cut = 0; cut <= text.length; cut += 1) {
      const reader = new SseReader();
      const found = [...reader.push(text.slice(0, cut)), ...reader.push(text.slice(cut))];
      expect(found).toEqual([{ event: 'jobs', data: '{"jobs":[]}' }, { event: 'dropped', data: '{"dropped":2}' }]);
    }
  });
});

describe('a sparkline', () => {
  it('has the newest point at its right edge and forgets after 15 minutes', () => {
    const trail = new Trail();
    expect(trail.line(60, 16)).toBe('');
    for (let second = 0; second < 3600; second += 1) trail.add(second * 1000, second < 3000 ? 1000 : 5);
    const points = trail.line(60, 16).split(' ');
    expect(points).toHaveLength(60);
    expect(points.at(-1)?.startsWith('60.0,')).toBe(true);
    expect(points[0]?.startsWith('0.0,')).toBe(true);
  });
});

describe('a diff', () => {
  it('keeps the lines that both have', () => {
    expect(diffLines('a\nb\nc\nd', 'a\nx\nc\ny\nd')).toEqual([' a', '-b', '+x', ' c', '+y', ' d']);
    expect(diffLines('a', 'a')).toEqual([' a']);
    expect(diffLines('a\na', 'a')).toEqual([' a', '-a']);
  });
  it('has both texts in it', () => {
    const [old, fresh] = ['1\n2\n3\n4\n5', '0\n2\n9\n4'];
    const lines = diffLines(old, fresh);
    const side = (mark: string) => lines.filter((line) => line[0] === ' ' || line[0] === mark).map((line) => line.slice(1)).join('\n');
    expect([side('-'), side('+')]).toEqual([old, fresh]);
  });
});

describe('the time line', () => {
  it('has everything, newest first', () => {
    const events = [{ at_ms: 1, kind: 'request', text: 'start', by: 'me' }, { at_ms: 5, kind: 'state', text: 'failed', detail: 'why' }];
    const runs = [{ generation: 1, begun_ms: 1, ended_ms: 5, end: 'failed' as const, restarts: 2 }];
    const logs = [{ number: 1, at_ms: 3, level: 'warning', text: 'slow' }];
    const lines = timeline(events, runs, logs);
    expect(lines.map((line) => [line.kind, line.level])).toEqual([['state', 'error'], ['run', 'error'], ['log', 'warning'], ['request', 'info']]);
  });
});

import { expect, test } from 'vitest';
import type { StageReading } from '../../src/lib/reading';
import { spent, type Moment } from '../../src/lib/spent';

/** A source, an operator, a sink, and a stage that is not on the way. */
function moment(atMs: number, of: { bundles: number; busyMs: number; queued: number; results: number; latencyMs: number }): Moment {
  const counters = { rows_in: 0, rows_out: 0, bytes_out: 0, bundles_out: of.bundles, busy_ns: of.busyMs * 1e6 };
  const stage = (id: string, inputs: number[], more: object) => ({ id, name: id, inputs, counters, queued: 0, sink: null, ...more }) as unknown as StageReading;
  const times = (count: number, sum_us: number) => ({ counts: [count], sum_us });
  const sink = { latency: times(of.results, of.latencyMs * 1000 * of.results), writes: times(of.results, 500 * of.results) };
  return {
    atMs,
    stages: [
      stage('source', [], { counters: { ...counters, busy_ns: of.busyMs * 1e5 } }),
      stage('counts', [0], { queued: of.queued }),
      stage('elsewhere', [0], { queued: 1000 }),
      stage('sink', [1], { sink, counters: { ...counters, busy_ns: 0 } }),
    ],
  };
}

test('a latency is what stages, queues and the sink take, and waiting', () => {
  const moments = [
    moment(0, { bundles: 0, busyMs: 0, queued: 2, results: 0, latencyMs: 0 }),
    moment(10_000, { bundles: 1000, busyMs: 1000, queued: 2, results: 100, latencyMs: 40 }),
  ];
  const parts = spent(moments, 'sink');
  // 1 ms in the operator and 0.1 ms in the source; a queue of two where 100 bundles a second come: 10 ms.
  expect(parts?.map((part) => [part.kind, Math.round(part.us), part.most])).toEqual([
    ['computing', 1100, 'counts'],
    ['queued', 10_000, 'counts'],
    ['writing', 500, undefined],
    ['waiting', 28_400, undefined],
  ]);
  expect(parts?.reduce((sum, part) => sum + part.share, 0)).toBeCloseTo(1);
});

test('what works side by side is never more than the latency', () => {
  const moments = [
    moment(0, { bundles: 0, busyMs: 0, queued: 8, results: 0, latencyMs: 0 }),
    moment(10_000, { bundles: 1000, busyMs: 1000, queued: 8, results: 100, latencyMs: 8.16 }),
  ];
  const parts = spent(moments, 'sink');
  expect(parts?.map((part) => Math.round(part.us))).toEqual([125, 7978, 57, 0]);
});

test('without results there is nothing to say', () => {
  const still = moment(0, { bundles: 5, busyMs: 1, queued: 0, results: 3, latencyMs: 1 });
  expect(spent([still, { ...still, atMs: 1000 }], 'sink')).toBeUndefined();
  expect(spent([], 'sink')).toBeUndefined();
  expect(spent([still], 'nowhere')).toBeUndefined();
});

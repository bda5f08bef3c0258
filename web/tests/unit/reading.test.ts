import { describe, expect, it } from 'vitest';
import { edgesOf, quantile, shares, since, statementsOf, withStatements, type StageRates } from '../../src/lib/reading';

const counts = (pairs: [number, number][]) => {
  const all = Array(17).fill(0);
  for (const [bucket, count] of pairs) all[bucket] = count;
  return { counts: all, sum_us: 0 };
};

describe('latencies', () => {
  it('have quantiles as exact as their buckets', () => {
    const fast = counts([[0, 99], [5, 1]]);
    expect(quantile(fast, 0.99)).toBe(1000);
    expect(quantile(fast, 1)).toBe(50_000);
    expect(quantile(counts([[16, 3]]), 0.5)).toBe(60_000_000);
    expect(quantile(counts([]), 0.5)).toBeUndefined();
    expect(quantile(undefined, 0.5)).toBeUndefined();
  });
  it('of a while are what was counted since', () => {
    expect(since(counts([[0, 9], [3, 2]]), counts([[0, 4]])).counts.slice(0, 4)).toEqual([5, 0, 0, 2]);
  });
});

describe('stages', () => {
  const rates: StageRates = {
    rows_in: 1, rows_out: 1, late: 0, quarantined: 0, busy: 0.7, busiest_partition: 0, skew: 1,
    blocked: { output: 0.1, memory: 0, order: 0.6, lookup: 0, cut: 0 },
  };
  it('spend all of their time', () => {
    const part = shares(rates)!;
    expect(part.by).toBe('order');
    expect(part.busy + part.blocked + part.idle).toBeCloseTo(1);
    expect(part.blocked).toBeCloseTo(0.3);
    expect(shares(null)).toBeUndefined();
  });
  it('have one edge from one to another', () => {
    const stages = [{ id: 'a', inputs: [] }, { id: 'join', inputs: [0, 0] }, { id: 'lost', inputs: [7] }];
    expect(edgesOf(stages)).toEqual([{ id: 'a→join', from: 'a', to: 'join' }]);
  });
});

describe('advice', () => {
  const advice = "idle timeout is off: allow it by SET 'a.b' = 'true'; SET 'c' = '30 s';";
  it('takes the place of a SET of the same option', () => {
    expect(withStatements("SET 'c' = '0 s';\nINSERT …", ["SET 'c' = '30 s';"])).toBe("SET 'c' = '30 s';\nINSERT …");
  });
  it('names statements, which are put in front once', () => {
    const statements = statementsOf(advice);
    expect(statements).toEqual(["SET 'a.b' = 'true';", "SET 'c' = '30 s';"]);
    const once = withStatements('INSERT …', statements);
    expect(withStatements(once, statements)).toBe(once);
    expect(statementsOf(null)).toEqual([]);
  });
});

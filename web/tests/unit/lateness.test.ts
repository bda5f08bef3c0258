import { describe, expect, it } from 'vitest';
import { columnsByTop, histogram, keptBy, topValues } from '../../src/lib/lateness';

describe('lateness', () => {
  it('is counted in bars of one width that have all rows', () => {
    expect(histogram([])).toEqual([]);
    expect(histogram([0, 1, 9], 5)).toEqual([
      { fromMs: 0, toMs: 2, rows: 2 }, { fromMs: 2, toMs: 4, rows: 0 }, { fromMs: 4, toMs: 6, rows: 0 },
      { fromMs: 6, toMs: 8, rows: 0 }, { fromMs: 8, toMs: 10, rows: 1 },
    ]);
    const rows = Array.from({ length: 500 }, (_, at) => (at * 7919) % 80_400);
    const bars = histogram(rows);
    expect(bars.length).toBeLessThanOrEqual(24);
    expect(bars.reduce((sum, bar) => sum + bar.rows, 0)).toBe(500);
  });
  it('is told apart by the values that are late most', () => {
    const rows = Array.from({ length: 60 }, (_, at) => ({ id: at, key: at % 3 === 0 ? 'a' : `k${at % 20}`, same: 1 }));
    const top = topValues(rows, 'key');
    expect(top.length).toBe(10);
    expect(top[0]).toEqual({ value: 'a', rows: 20 });
    expect(top.slice(1).every((one) => one.rows <= 20)).toBe(true);
    expect(topValues(rows, 'absent')).toEqual([{ value: 'null', rows: 60 }]);
    expect(columnsByTop(rows)).toEqual(['key', 'id', 'same']);
    expect(columnsByTop([])).toEqual([]);
  });
  it('says what a longer delay would have kept', () => {
    expect(keptBy([10, 20, 30, 40], 20)).toBe(0.5);
    expect(keptBy([], 20)).toBe(0);
  });
});

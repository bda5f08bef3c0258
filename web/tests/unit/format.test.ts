import { describe, expect, it } from 'vitest';
import { bytes, exact, percent, rate, short, span, time } from '../../src/lib/format';

describe('numbers', () => {
  it('have three digits and a unit', () => {
    expect([0, 7, 16, 99.96, 1234, 999_999, 1_213_000, 5e10].map(short)).toEqual(['0', '7', '16', '100', '1.23 k', '1.00 M', '1.21 M', '50 G']);
    expect(short(0.25)).toBe('0.25');
    expect(short(0.001)).toBe('<0.01');
  });
  it('that are not known are a dash', () => {
    expect([short(undefined), rate(null), bytes(Number.NaN), percent(undefined), span(null), exact(undefined)]).toEqual(Array(6).fill('–'));
  });
  it('of bytes count in 1,024', () => {
    expect([0, 520, 1024, 47_400_000].map(bytes)).toEqual(['0 B', '520 B', '1 KiB', '45.2 MiB']);
  });
  it('of shares are whole', () => {
    expect([0, 0.001, 0.306, 1].map(percent)).toEqual(['0 %', '<1 %', '31 %', '100 %']);
  });
});

describe('times', () => {
  it('show their two largest units', () => {
    const second = 1000;
    const cases = [0, 230, 1100, 9940, 59_900, 401_000, 3_600_000, 90_061_000, 8 * 86_400_000 * second];
    expect(cases.map(span)).toEqual(['0 s', '230 ms', '1.1 s', '9.9 s', '1 m', '6 m 41 s', '1 h', '1 d 1 h', '8000 d']);
    expect(span(-61_000)).toBe('−1 m 1 s');
  });
  it('are UTC, with the date unless it is today', () => {
    const at = Date.UTC(2026, 0, 1, 10, 3, 12);
    expect(time(at, at)).toBe('10:03:12');
    expect(time(at, at + 86_400_000)).toBe('2026-01-01 10:03:12');
    expect(time(8.7e15)).toBe('out of range');
  });
});

/** How late rows were, and what a longer delay would have kept. */

export interface Bar {
  /** From this lateness on, in milliseconds. */
  fromMs: number;
  toMs: number;
  rows: number;
}

/** Rows by how late they were: at most this number of bars of the same width, from 0 to the latest. */
export function histogram(lateMs: number[], bars = 24): Bar[] {
  const latest = Math.max(0, ...lateMs);
  if (lateMs.length === 0) return [];
  const width = Math.max(1, Math.ceil((latest + 1) / bars));
  const found: Bar[] = [];
  for (let fromMs = 0; fromMs <= latest; fromMs += width) found.push({ fromMs, toMs: fromMs + width, rows: 0 });
  for (const late of lateMs) {
    const bar = found[Math.floor(Math.max(0, late) / width)];
    if (bar) bar.rows += 1;
  }
  return found;
}

/** The share of these rows that a delay longer by so much would have let in: a row counts that is not behind the watermark. */
export function keptBy(lateMs: number[], moreMs: number): number {
  return lateMs.length === 0 ? 0 : lateMs.filter((late) => late <= moreMs).length / lateMs.length;
}

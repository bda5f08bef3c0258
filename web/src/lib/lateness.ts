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

export interface Top {
  value: string;
  rows: number;
}

/** The values of a column that most of these rows have: at most ten, those with most rows first. */
export function topValues(rows: unknown[], column: string): Top[] {
  const counts = new Map<string, number>();
  for (const row of rows) {
    const value = cell(row, column);
    const text = typeof value === 'string' ? value : JSON.stringify(value ?? null);
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const all = Array.from(counts, ([value, count]) => ({ value, rows: count }));
  return all.sort((a, b) => b.rows - a.rows || (a.value < b.value ? -1 : 1)).slice(0, 10);
}

/** The columns of these rows, the one first whose ten most frequent values say most: few values have most of the rows. */
export function columnsByTop(rows: unknown[]): string[] {
  const columns = [...new Set(rows.flatMap((row) => (row && typeof row === 'object' ? Object.keys(row) : [])))];
  const share = (column: string) => {
    const distinct = new Set(rows.map((row) => JSON.stringify(cell(row, column) ?? null))).size;
    const covered = topValues(rows, column).reduce((sum, top) => sum + top.rows, 0);
    // One value for all rows says nothing about which are late.
    return distinct === 1 ? -1 : covered;
  };
  const shares = new Map(columns.map((column) => [column, share(column)]));
  return columns.sort((a, b) => (shares.get(b) ?? 0) - (shares.get(a) ?? 0));
}

function cell(row: unknown, column: string): unknown {
  return row && typeof row === 'object' ? (row as Record<string, unknown>)[column] : undefined;
}

/** The share of these rows that a delay longer by so much would have let in: a row counts that is not behind the watermark. */
export function keptBy(lateMs: number[], moreMs: number): number {
  return lateMs.length === 0 ? 0 : lateMs.filter((late) => late <= moreMs).length / lateMs.length;
}

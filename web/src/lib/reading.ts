/** What the server says of a job's stages (`JobReading`, `Why` of thalweg-monitoring), and what the page makes of it. */

export type StageKind = 'source' | 'transform' | 'operator' | 'sink';
export type BlockedReason = 'output' | 'memory' | 'order' | 'lookup' | 'cut';
export const BLOCKED_REASONS: BlockedReason[] = ['output', 'memory', 'order', 'lookup', 'cut'];

export interface Condition {
  kind: string;
  since_ms: number;
  text: string;
}
export interface Distribution {
  counts: number[];
  sum_us: number;
}
export interface SplitReading {
  name: string;
  watermark: number | null;
  is_idle: boolean;
  idle_since_ms: number | null;
  has_ended: boolean;
  is_paused: boolean;
  rows: number;
  last_row_time_ms: number | null;
  last_row_at_ms: number | null;
  position: string | null;
  lag_rows: number | null;
  is_caught_up: boolean;
  bad_rows: number;
  last_error: string | null;
  recent: { rows: number; lag: number; pace: number } | null;
}
export interface StageRates {
  rows_in: number;
  rows_out: number;
  late: number;
  quarantined: number;
  busy: number;
  blocked: Record<BlockedReason, number>;
  busiest_partition: number;
  skew: number;
}
export interface StageReading {
  id: string;
  name: string;
  kind: StageKind;
  inputs: number[];
  parallelism: number;
  held_back_ms: number;
  waits_for: number | null;
  counters: {
    rows_in: number;
    rows_out: number;
    bytes_out: number;
    bundles_out: number;
    busy_ns: number;
    accepted: number;
    late: number;
    partly_late: number;
    quarantined: number;
    bad_rows: number;
  };
  state_bytes: number;
  queued: number;
  queued_bytes: number;
  watermark: number | null;
  has_ended: boolean;
  watermark_at_ms: number | null;
  problem: string | null;
  recent: StageRates | null;
  source: { is_bounded: boolean; has_time: boolean; is_idle: boolean; has_ended: boolean; splits: SplitReading[] } | null;
  sink: { latency: Distribution; recent_latency?: Distribution; writes: Distribution } | null;
}
export interface SnapshotReading {
  taken: number;
  failed: number;
  number: number | null;
  taken_at_ms: number | null;
  bytes: number;
  written_bytes: number;
  interval_ms: number | null;
  durations: Distribution;
  holds: Distribution;
  problem: string | null;
}
export interface JobReading {
  job: string;
  at_ms: number;
  started_at_ms: number;
  state: string;
  order: string;
  mode: string;
  workers: number;
  memory: {
    limit_bytes: number;
    in_flight_bytes: number;
    in_flight_bytes_max: number;
    state_bytes: number;
    buffer_bytes: number;
  };
  stages: StageReading[];
  snapshots: SnapshotReading | null;
}
export interface Why {
  at_ms: number;
  sink: string;
  verdict: 'flowing' | 'behind' | 'standing-still' | 'ended';
  watermark: number | null;
  since_ms: number | null;
  holder: { stage: number; name: string; kind: StageKind; split: [number, string] | null };
  path: number[];
  path_names: string[];
  by_design: [string, number][];
  reason: { kind: string } & Record<string, unknown>;
  evidence: {
    split: string;
    watermark: number | null;
    last_row_at_ms: number | null;
    rows_per_s: number | null;
    lag_rows: number | null;
    note: string;
  }[];
  without: { watermark: number | null; gain_ms: number | null; windows: number } | null;
  next: { stage: string; window_end_ms: number; step_ms: number; in_ms: number | null } | null;
  advice: string | null;
  sentence: string;
}

/** The bounds of the buckets of distributions, in microseconds. The last bucket is beyond. */
export const BUCKET_BOUNDS_US = [
  1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 3e7, 6e7,
];

export interface Shares {
  busy: number;
  blocked: number;
  idle: number;
  by: BlockedReason | undefined;
}

/** How a stage spends its time; the three add up to 1. */
export function shares(rates: StageRates | null): Shares | undefined {
  if (!rates) return undefined;
  const busy = Math.min(1, Math.max(0, rates.busy));
  const by = BLOCKED_REASONS.reduce((most, one) => (rates.blocked[one] > rates.blocked[most] ? one : most));
  const blocked = Math.min(1 - busy, Math.max(0, rates.blocked[by]));
  return { busy, blocked, idle: 1 - busy - blocked, by: rates.blocked[by] > 0 ? by : undefined };
}

export interface StageEdge {
  id: string;
  from: string;
  to: string;
}

/** The edges between stages. Two inputs from the same stage are one edge. */
export function edgesOf(stages: Pick<StageReading, 'id' | 'inputs'>[]): StageEdge[] {
  const edges = new Map<string, StageEdge>();
  for (const stage of stages) {
    for (const input of stage.inputs) {
      const from = stages[input]?.id;
      if (from === undefined) continue;
      const id = `${from}→${stage.id}`;
      edges.set(id, { id, from, to: stage.id });
    }
  }
  return [...edges.values()];
}

/** The time below which a share of all times lies, in microseconds, as exact as its bucket. */
export function quantile(of: Distribution | null | undefined, share: number): number | undefined {
  const counts = of?.counts ?? [];
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return undefined;
  const wanted = total * share;
  let below = 0;
  let floor = 0;
  for (const [place, count] of counts.entries()) {
    const bound = BUCKET_BOUNDS_US[place] ?? floor;
    if (count > 0 && below + count >= wanted) {
      return floor + Math.max(0, (wanted - below) / count) * (bound - floor);
    }
    below += count;
    floor = bound;
  }
  return floor;
}

/** What was counted since an earlier moment. */
export function since(now: Distribution, before: Distribution | undefined): Distribution {
  if (!before) return now;
  const counts = now.counts.map((count, place) => Math.max(0, count - (before.counts[place] ?? 0)));
  return { counts, sum_us: Math.max(0, now.sum_us - before.sum_us) };
}

export function total(of: Distribution | null | undefined): number {
  return (of?.counts ?? []).reduce((sum, count) => sum + count, 0);
}

/** The statements in a text of advice, such as `SET 'a' = 'b';`. */
export function statementsOf(advice: string | null): string[] {
  return advice?.match(/SET '[^']+' = '[^']*';/g) ?? [];
}

/** Statements with others put in front; a SET of the same option is replaced. */
export function withStatements(sql: string, statements: string[]): string {
  let text = sql;
  const fresh: string[] = [];
  for (const statement of statements) {
    const option = /^SET '([^']+)'/.exec(statement)?.[1] ?? '';
    const before = [...text.matchAll(/SET\s+'([^']+)'\s*=\s*'[^']*'\s*;/gi)].find((found) => found[1] === option);
    if (before) text = text.replace(before[0], () => statement);
    else fresh.push(statement);
  }
  return fresh.length === 0 ? text : `${fresh.join('\n')}\n${text}`;
}

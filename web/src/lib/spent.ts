import { since, total, type StageReading } from './reading';

/** The stages of a job at a moment. */
export interface Moment {
  atMs: number;
  stages: StageReading[];
}

export type SpentKind = 'computing' | 'queued' | 'writing' | 'waiting';

/** What a result of the mean latency has spent its time on. */
export interface Spent {
  kind: SpentKind;
  us: number;
  /** Of the latency, between 0 and 1. */
  share: number;
  /** The stage that took most of it, where stages are counted. */
  most?: string;
}

/**
 * What the mean latency of a sink consists of, between the first moment and the last: for the bundle that completes a
 * result, how long each stage on its way computes, how long it lies in their queues (what lies behind a bundle that is
 * taken has come while that waited: Little's law), and how long the sink writes. What is left is waiting: for other rows to be read with it, for
 * other inputs and partitions, for a worker. An estimate from counters, since no row is followed on its way. Nothing if
 * no result came between.
 */
export function spent(moments: Moment[], sinkId: string): Spent[] | undefined {
  const first = moments[0];
  const last = moments.at(-1);
  const sink = last?.stages.findIndex((stage) => stage.id === sinkId) ?? -1;
  const [now, before] = [last?.stages[sink]?.sink, first?.stages[sink]?.sink];
  if (!first || !last || !now || !before || first.stages.length !== last.stages.length) return undefined;
  const latency = since(now.latency, before.latency);
  if (total(latency) === 0) return undefined;
  const meanUs = latency.sum_us / total(latency);
  const writes = since(now.writes, before.writes);
  const writing = total(writes) > 0 ? writes.sum_us / total(writes) : 0;
  const parts = upstream(last.stages, sink).map((place) => atStage(moments, first, last, place));
  const counted = [most('computing', parts), most('queued', parts), { kind: 'writing' as const, us: writing }];
  // Stages work side by side, so what was counted can be more than what passed.
  const countedUs = counted.reduce((sum, part) => sum + part.us, 0);
  const scale = countedUs > meanUs ? meanUs / countedUs : 1;
  const scaled = counted.map((part) => ({ ...part, us: part.us * scale }));
  const all = [...scaled, { kind: 'waiting' as const, us: Math.max(0, meanUs - countedUs * scale) }];
  return all.map((part) => ({ ...part, share: meanUs > 0 ? part.us / meanUs : 0 }));
}

/** The places of a stage and of all before it. */
function upstream(stages: StageReading[], from: number): number[] {
  const places = new Set([from]);
  for (const place of places) for (const input of stages[place]?.inputs ?? []) places.add(input);
  return [...places];
}

interface AtStage {
  name: string;
  computing: number;
  queued: number;
}

function atStage(moments: Moment[], first: Moment, last: Moment, place: number): AtStage {
  const name = last.stages[place]?.name ?? '';
  const inputs = last.stages[place]?.inputs ?? [];
  const grown = (of: number, read: (stage: StageReading) => number) => {
    const [now, before] = [last.stages[of], first.stages[of]];
    return now && before ? Math.max(0, read(now) - read(before)) : 0;
  };
  // A source works once for each bundle that it gives, every other stage for each that it is given.
  const from = inputs.length > 0 ? inputs : [place];
  const bundles = from.reduce((sum, input) => sum + grown(input, (stage) => stage.counters.bundles_out), 0);
  if (bundles === 0) return { name, computing: 0, queued: 0 };
  // The length of the queue before one is taken, that one counted.
  const behind = (moment: Moment) => Math.max(0, (moment.stages[place]?.queued ?? 0) - 1);
  const queued = moments.reduce((sum, moment) => sum + behind(moment), 0) / moments.length;
  const computing = grown(place, (stage) => stage.counters.busy_ns) / 1000 / bundles;
  return { name, computing, queued: (queued * (last.atMs - first.atMs) * 1000) / bundles };
}

function most(kind: 'computing' | 'queued', parts: AtStage[]): Omit<Spent, 'share'> {
  const us = parts.reduce((sum, part) => sum + part[kind], 0);
  const longest = parts.reduce((a, b) => (b[kind] > a[kind] ? b : a));
  return us > 0 ? { kind, us, most: longest.name } : { kind, us };
}

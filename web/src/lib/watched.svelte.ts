import { Problem, get, jobPath, said, type GraphView, type JobView, type PlannedGraph, call, type ExplainAnswer } from './api';
import type { Condition, JobReading, StageReading } from './reading';

/**
 * The job that is looked at: its reading of each second, or, where it does not run, its plan with the counters of its
 * last run.
 */
export class WatchedJob {
  reading: JobReading | undefined = $state.raw();
  conditions: Condition[] = $state.raw([]);
  oldestMs = $state(0);
  newestMs = $state(0);
  view: JobView | undefined = $state.raw();
  order = $state('');
  problem = $state('');
  isRunning = $state(false);
  isMissing = $state(false);
  /** By stage: how long the longest wait of its latency is, over the time that this page has looked. */
  #planned = '';

  constructor(readonly name: string) {}

  get stages(): StageReading[] {
    return this.reading?.stages ?? [];
  }

  async look(signal: AbortSignal) {
    try {
      const graph = await get<GraphView>(jobPath(this.name, '/graph'), signal);
      this.reading = graph.reading;
      this.conditions = graph.conditions;
      this.oldestMs = graph.oldest_ms ?? 0;
      this.newestMs = graph.newest_ms ?? 0;
      this.order = graph.reading.order;
      this.isRunning = true;
      this.problem = '';
      this.#planned = '';
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status === 409) await this.#atRest(signal);
      else if (error instanceof Problem && error.code === 'no-such-job') this.isMissing = true;
      else this.problem = said(error);
    }
  }

  /** Asks for the statements again. */
  async load(signal?: AbortSignal) {
    try {
      this.view = await get<JobView>(jobPath(this.name), signal);
    } catch (error) {
      if (error instanceof Problem && error.code === 'no-such-job') this.isMissing = true;
    }
  }

  async #atRest(signal: AbortSignal) {
    this.isRunning = false;
    this.conditions = [];
    await this.load(signal);
    const view = this.view;
    if (!view) return;
    const key = `${view.revision} ${view.state} ${view.stages.length}`;
    if (key === this.#planned) return;
    const { params, settings } = view.about ?? {};
    const body = { sql: view.sql, params: params ?? {}, settings: settings ?? {} };
    try {
      const plan = await call<ExplainAnswer>('POST', 'v1/explain', body);
      const graph = plan.graphs[0];
      if (graph) this.reading = restingReading(this.name, graph, view);
      this.order = graph?.order ?? '';
      this.problem = '';
    } catch (error) {
      this.reading = undefined;
      this.problem = said(error);
    }
    this.#planned = key;
  }
}

/** A plan as a reading without rates. */
export function restingReading(job: string, graph: PlannedGraph, view?: Pick<JobView, 'stages'>): JobReading {
  const places = new Map(graph.stages.map((stage, place) => [stage.id, place]));
  const counted = new Map((view?.stages ?? []).map((stage) => [stage.id, stage]));
  const stages = graph.stages.map((stage): StageReading => {
    const last = counted.get(stage.id);
    const inputs = graph.edges.filter((edge) => edge.to === stage.id).map((edge) => places.get(edge.from) ?? -1);
    return {
      id: stage.id,
      name: stage.name,
      kind: stage.role as StageReading['kind'],
      inputs: inputs.filter((input) => input >= 0),
      parallelism: 1,
      held_back_ms: 0,
      waits_for: null,
      counters: {
        rows_in: last?.rows_in ?? 0,
        rows_out: last?.rows_out ?? 0,
        bytes_out: last?.bytes_out ?? 0,
        bundles_out: 0,
        busy_ns: last?.busy_ns ?? 0,
        accepted: last?.accepted_rows ?? 0,
        late: last?.late_rows ?? 0,
        partly_late: 0,
        quarantined: 0,
        bad_rows: last?.bad_rows ?? 0,
      },
      state_bytes: last?.state_bytes ?? 0,
      queued: 0,
      queued_bytes: 0,
      watermark: last?.watermark_ms ?? null,
      has_ended: false,
      watermark_at_ms: null,
      problem: last?.problem ?? null,
      recent: null,
      source: null,
      sink: null,
    };
  });
  const memory = { limit_bytes: 0, in_flight_bytes: 0, in_flight_bytes_max: 0, state_bytes: 0, buffer_bytes: 0 };
  const base = { job, at_ms: 0, started_at_ms: 0, state: 'stopped', mode: '', workers: 0, snapshots: null };
  return { ...base, order: graph.order, memory, stages };
}

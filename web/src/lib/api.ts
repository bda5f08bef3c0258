import type { components } from './openapi';
import type { Condition, JobReading, Why } from './reading';
import { session } from './session.svelte';

type Schemas = components['schemas'];
export type JobState = Schemas['State'];
export type Outcome = Schemas['OutcomeRecord'];
export type Operation = Schemas['Operation'];
export type Diagnostic = Schemas['Diagnostic'];
export type ProblemBody = Schemas['Problem'];
export type PutAnswer = Schemas['PutAnswer'];
export type ValidateAnswer = Schemas['ValidateAnswer'];
export type ExplainAnswer = Schemas['ExplainAnswer'];
export type PlannedGraph = Schemas['PlannedGraph'];
export type QueryAnswer = Schemas['QueryAnswer'];
export type SnapshotView = Schemas['SnapshotView'];
export type TableView = Schemas['TableView'];
export type LateRows = Schemas['LateRows'];
export type TrialView = Schemas['TrialView'];
export type Verified = Schemas['Verified'];
export type DeadLetters = Schemas['DeadLetters'];
export type SnapshotContents = Schemas['SnapshotContents'];
export type StageView = Schemas['StageView'];
export type EventLine = Schemas['Event'];
export type LogLine = Schemas['LogLine'];
export type RunLine = Schemas['RunLine'];
export type Revision = Schemas['Revision'];
export type ConfigEntry = Schemas['ConfigEntry'];
export type TokenView = Schemas['TokenView'];
export type Version = Schemas['Version'];
export type CompleteAnswer = Schemas['CompleteAnswer'];

/** What a job is doing at the moment. */
export interface JobNow {
  in_per_s: number;
  out_per_s: number;
  late_per_min: number;
  bad_per_min: number;
  busy?: number;
  lag_s?: number;
  p99_s?: number;
  memory_bytes?: number;
}
/** A job in a list; `now` is there while it runs. */
export type JobSummary = Schemas['JobSummary'] & { now?: JobNow; conditions?: Condition[] };
export type JobView = JobSummary & { sql: string; about?: Revision; stages: StageView[] };
export interface ServerNow {
  version: string;
  began_ms: number;
  workers: number;
  busy: number;
  memory_bytes: number;
  memory_limit_bytes: number;
}
export interface GraphView {
  reading: JobReading;
  conditions: Condition[];
  oldest_ms?: number | null;
  newest_ms?: number | null;
}
export interface WhyView {
  sentence: string;
  text: string;
  why: Why;
  conditions: Condition[];
}
export interface HistoryView {
  at_ms: number[];
  stages: { id: string; name: string; watermark_ms: (number | null)[]; numbers: Record<string, number[]> }[];
}
export interface List<T> {
  items: T[];
  next?: string;
}

/** An answer that is an error, as the server words it. */
export class Problem extends Error {
  constructor(readonly body: Partial<ProblemBody> & { status: number }) {
    super(body.detail ?? body.title ?? `the server answered ${body.status}`);
  }
  get status() {
    return this.body.status;
  }
  get code() {
    return this.body.code ?? '';
  }
}

/** The server does not answer. */
export class Unreachable extends Error {}

export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (session.token) headers.set('authorization', `Bearer ${session.token}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: 'no-store' });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Unreachable('the server does not answer');
  }
  if (response.ok) return response;
  if (response.status === 401) session.refuse();
  throw new Problem({ ...(await bodyOf(response)), status: response.status });
}

async function bodyOf(response: Response): Promise<Partial<ProblemBody>> {
  try {
    return await response.json();
  } catch {
    return {};
  }
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send(path, signal ? { signal } : {})).json();
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method, headers: { prefer: 'wait=20' } };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, 'content-type': 'application/json' };
  }
  const response = await send(path, init);
  return response.status === 204 ? (undefined as T) : response.json();
}

export const jobPath = (job: string, rest = '') => `v1/jobs/${encodeURIComponent(job)}${rest}`;

/** What a person reads of an error. */
export function said(error: unknown): string {
  if (error instanceof Problem) {
    const helps = (error.body.diagnostics ?? []).map((one) => one.help).filter(Boolean);
    return [error.message, ...helps].join('; ');
  }
  return error instanceof Error ? error.message : String(error);
}

import { Problem, send, type JobNow, type JobSummary, type ServerNow } from './api';
import { SseReader } from './sse';
import { Trail } from './trail';

export type Link = 'opening' | 'live' | 'lost' | 'refused';

const RETRY_MS = [300, 1000, 2000, 5000];

/**
 * All jobs, from one stream of the server that is open while anybody looks at the page: a hidden tab reads nothing.
 */
class Live {
  jobs: JobSummary[] = $state.raw([]);
  server: ServerNow | undefined = $state.raw();
  link: Link = $state('opening');
  /** Messages that this page was too slow for. */
  dropped = $state(0);
  /** When the jobs were heard of last. */
  atMs = $state(0);
  readonly trails = new Map<string, Trail>();
  #abort: AbortController | undefined;
  #failures = 0;
  #before = new Map<string, { atMs: number; job: JobSummary; now: JobNow }>();

  start() {
    document.addEventListener('visibilitychange', () => (document.hidden ? this.stop() : this.open()));
  }

  stop() {
    this.#abort?.abort();
    this.#abort = undefined;
  }

  open() {
    if (this.#abort || document.hidden) return;
    const abort = (this.#abort = new AbortController());
    void this.#read(abort);
  }

  /** Begins anew, with another token. */
  reopen() {
    this.stop();
    this.#failures = 0;
    this.link = 'opening';
    this.open();
  }

  find(name: string): JobSummary | undefined {
    return this.jobs.find((job) => job.name === name);
  }

  async #read(abort: AbortController) {
    const { signal } = abort;
    while (!signal.aborted) {
      try {
        const response = await send('v1/live?topics=jobs', { signal, headers: { accept: 'text/event-stream' } });
        const reader = new SseReader();
        const body = response.body?.pipeThrough(new TextDecoderStream()).getReader();
        for (let part = await body?.read(); part && !part.done; part = await body?.read()) {
          for (const message of reader.push(part.value)) this.#take(message.event, message.data);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && error.status === 401) {
          this.link = 'refused';
          this.#abort = undefined;
          return;
        }
      }
      if (signal.aborted) return;
      this.link = 'lost';
      const wait = RETRY_MS[Math.min(this.#failures, RETRY_MS.length - 1)] ?? 5000;
      this.#failures += 1;
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  #take(event: string, data: string) {
    const message = JSON.parse(data);
    if (event === 'dropped') {
      this.dropped += message.dropped;
      return;
    }
    if (event !== 'jobs') return;
    this.#failures = 0;
    this.link = 'live';
    this.atMs = Date.now();
    this.server = message.server;
    this.jobs = (message.jobs as JobSummary[]).map((job) => this.#withRates(job));
    for (const job of this.jobs) this.#trail(job);
  }

  #trail(job: JobSummary) {
    if (!job.now) return;
    let trail = this.trails.get(job.name);
    if (!trail) this.trails.set(job.name, (trail = new Trail()));
    trail.add(this.atMs, job.now.in_per_s);
  }

  /** A server that sends counters alone is a server whose rates are worked out here. */
  #withRates(job: JobSummary): JobSummary {
    const runs = job.state === 'running' || job.state === 'paused';
    if (job.now || !runs) return job;
    const before = this.#before.get(job.name);
    const seconds = before ? (this.atMs - before.atMs) / 1000 : 0;
    if (before && seconds < 0.9) return { ...job, now: before.now };
    const grown = (of: (job: JobSummary) => number) =>
      before ? Math.max(0, of(job) - of(before.job)) / seconds : 0;
    const now: JobNow = {
      in_per_s: grown((one) => one.rows_in),
      out_per_s: grown((one) => one.rows_out),
      late_per_min: grown((one) => one.late_rows) * 60,
      bad_per_min: grown((one) => one.bad_rows) * 60,
    };
    if (job.watermark_ms != null) now.lag_s = (this.atMs - job.watermark_ms) / 1000;
    this.#before.set(job.name, { atMs: this.atMs, job, now });
    return { ...job, now };
  }
}

export const live = new Live();

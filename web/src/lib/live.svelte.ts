import { Problem, send, type JobSummary, type ServerNow } from './api';
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
    this.jobs = message.jobs as JobSummary[];
    for (const job of this.jobs) this.#trail(job);
  }

  #trail(job: JobSummary) {
    if (!job.now) return;
    let trail = this.trails.get(job.name);
    if (!trail) this.trails.set(job.name, (trail = new Trail()));
    trail.add(this.atMs, job.now.in_per_s);
  }
}

export const live = new Live();

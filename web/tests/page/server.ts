import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const BINARY = process.env.THALWEG ?? '../target/debug/thalweg';
/** The files as they were built last, where they are not those of the binary. */
const PAGE = process.env.THALWEG_PAGE ? ['--page-dir', process.env.THALWEG_PAGE] : [];

/** A server with a data directory of its own, on a free port of this machine. */
export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), 'thalweg-page-'));
  token = '';
  address = '';
  #child: ChildProcess | undefined;

  static async begin(options: string[] = []): Promise<Server> {
    const server = new Server();
    mkdirSync(join(server.folder, 'files'), { recursive: true });
    await server.start(options);
    server.token = server.command('token', 'create', 'test', '--role', 'admin').trim().split('\n').at(-1) ?? '';
    return server;
  }

  get url() {
    return `http://${this.address}`;
  }

  /** Starts it, at the same address as before. */
  async start(options: string[] = []) {
    const listen = this.address || '127.0.0.1:0';
    const child = spawn(BINARY, ['serve', '--data-dir', this.folder, '--listen', listen, '-o', 'workers=2', ...PAGE, ...options], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    const said: string[] = [];
    this.address = await new Promise((done, fail) => {
      createInterface({ input: child.stderr as NodeJS.ReadableStream }).on('line', (line) => {
        said.push(line);
        const address = /^listening at http:\/\/(\S+)/.exec(line)?.[1];
        if (address) done(address);
      });
      child.on('error', fail);
      child.on('exit', () => fail(new Error(`the server has ended: ${said.join('\n')}`)));
    });
  }

  async stop(signal: NodeJS.Signals = 'SIGKILL') {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    child.removeAllListeners('exit');
    const ended = new Promise((done) => child.once('exit', done));
    child.kill(signal);
    await ended;
  }

  async end() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  command(...args: string[]): string {
    const { stdout, stderr, status } = spawnSync(BINARY, [...args, '--data-dir', this.folder], { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${args.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  }

  file(name: string, text: string) {
    const path = join(this.folder, 'files', name);
    mkdirSync(join(path, '..'), { recursive: true });
    writeFileSync(path, text);
  }

  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.token}`, prefer: 'wait=60' };
    if (body !== undefined) headers['content-type'] = 'application/json';
    const response = await fetch(`${this.url}/${path}`, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text === '' ? (undefined as T) : JSON.parse(text);
  }

  async submit(name: string, sql: string, more: Record<string, unknown> = {}) {
    await this.ask('PUT', `v1/jobs/${name}`, { sql, desired: 'running', ...more });
  }

  /** Waits until something is true of a job. */
  async until<T>(path: string, is: (answer: T) => boolean, seconds = 60): Promise<T> {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const answer = await this.ask<T>('GET', path).catch(() => undefined);
      if (answer !== undefined && is(answer)) return answer;
      if (Date.now() > end) throw new Error(`${path} did not become what it should: ${JSON.stringify(answer)}`);
      await new Promise((done) => setTimeout(done, 200));
    }
  }
}

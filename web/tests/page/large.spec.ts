import { statSync, readFileSync, readdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { expect, open, test } from './opened';
import { FLOWING, wide } from './jobs_of_tests';
import { Server } from './server';

const MANY = 1000;
const FOLDER = '../crates/server/page';

test('the page keeps its budget of bytes', async () => {
  const gzipped = (name: string) => gzipSync(readFileSync(`${FOLDER}/${name}`), { level: 9 }).length;
  const first = ['index.html', 'app.js', 'app.css', 'icon.svg'].map(gzipped).reduce((sum, size) => sum + size, 0);
  const all = readdirSync(FOLDER).map(gzipped).reduce((sum, size) => sum + size, 0);
  const raw = readdirSync(FOLDER).map((name) => statSync(`${FOLDER}/${name}`).size).reduce((sum, size) => sum + size, 0);
  console.log(`first load ${first} bytes, all ${all} bytes gzipped, ${raw} bytes in the binary`);
  expect(first).toBeLessThanOrEqual(200_000);
  expect(all).toBeLessThanOrEqual(450_000);
});

test('a job with 200 stages is drawn whole and stays usable', async ({ page, faults }) => {
  void faults;
  test.setTimeout(240_000);
  const server = await Server.begin();
  try {
    await server.submit('wide', wide(48));
    interface Graph { reading: { stages: unknown[] } }
    const graph = await server.until<Graph>('v1/jobs/wide/graph', (found) => found.reading.stages.length > 0, 120);
    const stages = graph.reading.stages.length;
    console.log(`${stages} stages`);
    expect(stages).toBeGreaterThanOrEqual(190);
    await open(page, server, '/jobs/wide');
    await expect(page.locator('.svelte-flow__node').first()).toBeVisible();
    await page.getByRole('button', { name: 'Table', exact: true }).click();
    await expect(page.getByRole('table').first().getByRole('row')).toHaveCount(stages + 1);
    await page.getByRole('button', { name: 'Graph', exact: true }).click();
    const longest = await longestWait(page);
    console.log(`longest wait of the page in 5 s with ${stages} stages: ${longest} ms`);
  } finally {
    await server.end();
  }
});

test(`a list of ${MANY} jobs scrolls, filters and follows`, async ({ page, faults }) => {
  void faults;
  test.setTimeout(400_000);
  const server = await Server.begin();
  try {
    const began = Date.now();
    const made = async (from: number) => {
      for (let number = from; number < MANY; number += 8) {
        await server.ask('PUT', `v1/jobs/job-${String(number).padStart(4, '0')}`, { sql: FLOWING });
      }
    };
    await Promise.all(Array.from({ length: 8 }, (_, number) => made(number)));
    console.log(`${MANY} jobs made in ${Date.now() - began} ms`);
    await open(page, server);
    await expect(page.getByText(`1,000 draft`)).toBeVisible();
    expect(await page.locator('tbody tr').count()).toBeLessThan(80);
    await page.getByRole('region', { name: 'List of jobs' }).evaluate((list) => (list.scrollTop = list.scrollHeight));
    await expect(page.getByRole('link', { name: 'job-0999' })).toBeVisible();
    await page.getByLabel('Filter jobs').fill('job-0500');
    await expect(page.locator('tbody a')).toHaveCount(1);
    await server.ask('POST', 'v1/jobs/job-0500/start', {});
    await expect(page.getByRole('row', { name: /job-0500/ })).toContainText('running');
    const longest = await longestWait(page);
    console.log(`longest wait of the page in 5 s with ${MANY} jobs: ${longest} ms`);
  } finally {
    await server.end();
  }
});

test('a server that restarts under an open page is found again', async ({ page, faults }) => {
  void faults;
  const server = await Server.begin();
  try {
    await server.submit('flowing', FLOWING);
    await server.until<{ snapshot?: number }>('v1/jobs/flowing', (job) => job.snapshot !== undefined);
    await open(page, server);
    await expect(page.getByRole('row', { name: /flowing/ })).toContainText('running');
    await server.stop('SIGKILL');
    await expect(page.getByText('connection lost')).toBeVisible();
    await expect(page.getByRole('link', { name: 'flowing' })).toBeVisible();
    await server.start();
    await expect(page.getByText('connection lost')).toHaveCount(0);
    await expect(page.getByRole('row', { name: /flowing/ })).toContainText('running');
    // The failed requests of the meantime are no faults of the page.
    faults.length = 0;
  } finally {
    await server.end();
  }
});

test('a hidden tab holds no stream open', async ({ page, faults }) => {
  void faults;
  const server = await Server.begin();
  try {
    let streams = 0;
    page.on('request', (request) => request.url().includes('/v1/live') && (streams += 1));
    await open(page, server);
    await expect(page.getByText('No job yet.')).toBeVisible();
    expect(streams).toBe(1);
    const ended = page.waitForEvent('requestfailed', (request) => request.url().includes('/v1/live'));
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await ended;
    await page.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: false, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await expect.poll(() => streams).toBe(2);
  } finally {
    await server.end();
  }
});

/** The longest time that the page did not come to draw, in milliseconds. */
function longestWait(page: Parameters<typeof open>[0]): Promise<number> {
  return page.evaluate(async () => {
    const end = performance.now() + 5000;
    let [before, longest] = [performance.now(), 0];
    while (performance.now() < end) {
      await new Promise(requestAnimationFrame);
      longest = Math.max(longest, performance.now() - before);
      before = performance.now();
    }
    return Math.round(longest);
  });
}

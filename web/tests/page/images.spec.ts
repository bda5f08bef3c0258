import { mkdirSync } from 'node:fs';
import { open, test, expect } from './opened';
import { BANK, FAILING, FLOWING, HELD, LATE } from './jobs_of_tests';
import { Server } from './server';

/** The pictures of docs/page.md: `THALWEG_WRITE_DOCS=1 make page-test` takes them again. */
const FOLDER = process.env.THALWEG_IMAGES ?? '../docs/images/page';
const VIEWS: [string, string][] = [
  ['jobs', '/jobs'], ['graph', '/jobs/held'], ['panel', '/jobs/late'], ['table', '/jobs/late?as=table'], ['why', '/jobs/held/why'], ['latency', '/jobs/flowing/latency'],
  ['late', '/jobs/late/late'], ['snapshots', '/jobs/flowing/snapshots'], ['tables', '/jobs/bank/tables'], ['events', '/jobs/failing/events'], ['sql', '/jobs/held/sql'],
  ['editor', '/editor/held'], ['settings', '/settings'], ['failed', '/jobs/failing'],
];
/** Those that the page of the documentation shows. All are taken where THALWEG_IMAGES names a folder. */
const SHOWN = ['jobs-light', 'graph-light', 'why-dark', 'editor-light'];

test('pictures of the views', async ({ page, faults }) => {
  test.skip(!process.env.THALWEG_WRITE_DOCS, 'THALWEG_WRITE_DOCS is not set');
  test.setTimeout(400_000);
  void faults;
  mkdirSync(FOLDER, { recursive: true });
  const server = await Server.begin();
  try {
    server.file('manual/first.csv', 'ab,1.5,2026-01-01 00:00:00\n');
    server.file('payments.csv', '7\nseven\n');
    await server.submit('orders', FLOWING, { tags: ['shop'] });
    await server.submit('flowing', FLOWING);
    await server.submit('held', HELD.trimStart(), { tags: ['plant'] });
    await server.submit('late', LATE);
    await server.submit('failing', FAILING);
    await server.submit('bank', BANK);
    await server.ask('PUT', 'v1/jobs/sketch', { sql: FLOWING });
    await server.until<{ why: { verdict: string } }>('v1/jobs/held/why', (found) => found.why.verdict === 'standing-still', 90);
    await open(page, server);
    await page.waitForTimeout(60_000);
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme });
      for (const [name, view] of VIEWS) {
        const file = `${name}-${theme}`;
        if (!process.env.THALWEG_IMAGES && !SHOWN.includes(file)) continue;
        await page.goto(`${server.url}/#${view}`);
        await page.waitForTimeout(2500);
        await expect(page.locator('html')).toHaveAttribute('data-theme', theme);
        if (name === 'panel') await page.locator('.node').filter({ hasText: 'window' }).first().click();
        await page.waitForTimeout(name === 'latency' ? 15_000 : 4000);
        await page.screenshot({ path: `${FOLDER}/${file}.png` });
      }
    }
    expect(faults).toEqual([]);
  } finally {
    await server.end();
  }
});

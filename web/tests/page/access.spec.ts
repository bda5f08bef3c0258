import AxeBuilder from '@axe-core/playwright';
import { expect, open, test } from './opened';
import { BANK, FAILING, FLOWING, HELD, thermometer } from './jobs_of_tests';
import { Server } from './server';

let server: Server;

test.beforeAll(async () => {
  test.setTimeout(180_000);
  server = await Server.begin();
  server.file('manual/first.csv', 'ab,1.5,2026-01-01 00:00:00\n');
  server.file('payments.csv', '7\nseven\n');
  await server.submit('flowing', FLOWING, { tags: ['shop'] });
  await server.submit('held', HELD);
  await server.submit('failing', FAILING);
  await server.submit('bank', BANK);
  server.file('readings/first.csv', '20.5\nwarm\n');
  await server.submit('thermometer', thermometer('DOUBLE', 'celsius'));
  await server.until<{ state: string }>('v1/jobs/failing', (job) => job.state === 'failed');
  await server.until<{ snapshot?: number }>('v1/jobs/flowing', (job) => job.snapshot !== undefined);
});
test.afterAll(() => server.end());

const VIEWS = [
  '/jobs', '/jobs/flowing', '/jobs/flowing?as=table', '/jobs/failing', '/jobs/held/why', '/jobs/flowing/latency', '/jobs/flowing/late',
  '/jobs/thermometer/late',
  '/jobs/flowing/snapshots', '/jobs/bank/tables', '/jobs/failing/events', '/jobs/flowing/sql', '/editor', '/settings', '/nowhere',
];

for (const scheme of ['light', 'dark'] as const) {
  test(`axe finds nothing in any view, ${scheme}`, async ({ page, faults }) => {
    void faults;
    test.setTimeout(240_000);
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(server.url);
    await expect(page.getByLabel('Token')).toBeVisible();
    const found: string[] = await violations(page, 'token');
    await open(page, server);
    for (const view of VIEWS) {
      await page.goto(`${server.url}/#${view}`);
      await page.waitForTimeout(2500);
      found.push(...(await violations(page, view)));
    }
    await page.goto(`${server.url}/#/jobs/flowing`);
    await page.locator('.node').first().click();
    await page.waitForTimeout(4000);
    found.push(...(await violations(page, 'the panel of a stage')));
    await page.keyboard.press('Control+k');
    found.push(...(await violations(page, 'commands')));
    expect(found).toEqual([]);
  });
}

async function violations(page: Parameters<typeof open>[0], where: string): Promise<string[]> {
  const { violations: all } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze();
  return all.map((one) => `${where}: ${one.id}: ${one.nodes.map((node) => `${node.target.join(' ')} ${node.failureSummary?.split('\n').slice(1).join(' ')}`).slice(0, 3).join('; ')}`);
}

test('a page of twice the size needs no scrolling to the side', async ({ page, faults }) => {
  void faults;
  await page.setViewportSize({ width: 680, height: 700 });
  for (const view of ['/jobs', '/jobs/flowing', '/jobs/held/why', '/editor', '/settings']) {
    await open(page, server, view);
    await page.waitForTimeout(1500);
    const [content, seen] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    expect(content, view).toBeLessThanOrEqual(seen!);
  }
});

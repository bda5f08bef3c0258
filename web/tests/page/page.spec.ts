import { expect, open, test } from './opened';
import { Server } from './server';
import { BANK, FAILING, FLOWING, HELD, LATE, thermometer } from './jobs_of_tests';

interface Job {
  name: string;
  state: string;
  rows_in: number;
  late_rows: number;
  snapshot?: number;
  revision: number;
}
let server: Server;

test.beforeAll(async () => {
  test.setTimeout(180_000);
  server = await Server.begin();
  server.file('manual/first.csv', 'ab,1.5,2026-01-01 00:00:00\n');
  server.file('payments.csv', '7\nseven\n');
  await server.submit('flowing', FLOWING, { tags: ['shop'] });
  await server.submit('held', HELD);
  await server.submit('late', LATE);
  await server.submit('failing', FAILING);
  await server.ask('PUT', 'v1/jobs/sketch', { sql: FLOWING });
  await server.until<Job>('v1/jobs/failing', (job) => job.state === 'failed');
  await server.until<Job>('v1/jobs/flowing', (job) => job.state === 'running' && job.rows_in > 0);
});
test.afterAll(() => server.end());

test('without a token it asks for one, and a wrong one is refused', async ({ page, faults }) => {
  void faults;
  await page.goto(server.url);
  await expect(page.getByRole('heading', { name: 'A token, please' })).toBeVisible();
  await page.getByLabel('Token').fill('twt_wrong');
  await page.getByRole('button', { name: 'Open' }).click();
  await expect(page.getByText('does not know the token')).toBeVisible();
  await page.getByLabel('Token').fill(server.token);
  await page.getByRole('button', { name: 'Open' }).click();
  await expect(page.getByRole('link', { name: 'flowing', exact: true })).toBeVisible();
});

test('a token of the address is taken out of it', async ({ page, faults }) => {
  void faults;
  await open(page, server);
  await expect(page.getByRole('link', { name: 'flowing', exact: true })).toBeVisible();
  expect(page.url()).not.toContain('token');
  await page.goBack().catch(() => {});
  expect(page.url()).not.toContain('token');
});

test('the list shows what REST shows, failed jobs first', async ({ page, faults }) => {
  void faults;
  await open(page, server);
  const rows = page.getByRole('row');
  await expect(rows.nth(1)).toContainText('failing');
  await expect(rows.nth(1)).toContainText('failed');
  await expect(rows.nth(1)).toContainText('payments.csv');
  const flowing = page.getByRole('row', { name: /flowing/ });
  await expect(flowing).toContainText('running');
  await expect(flowing).toContainText('shop');
  const shown = await flowing.locator('td.in').getAttribute('title');
  const inRun = Number(/([\d,]+) in this run/.exec(shown ?? '')?.[1]?.replaceAll(',', ''));
  const job = await server.ask<Job>('GET', 'v1/jobs/flowing');
  expect(inRun).toBeGreaterThan(0);
  expect(inRun).toBeLessThanOrEqual(job.rows_in);
  await page.getByLabel('Filter jobs').fill('state:draft');
  await expect(page.getByRole('link', { name: 'sketch' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'flowing', exact: true })).toHaveCount(0);
});

test('the graph has the stages of the job, and its table the same numbers', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/flowing');
  const graph = await server.ask<{ reading: { stages: { name: string }[] } }>('GET', 'v1/jobs/flowing/graph');
  const names = graph.reading.stages.map((stage) => stage.name);
  for (const name of names) await expect(page.locator('.node').filter({ hasText: name }).first()).toBeVisible();
  await expect(page.locator('.svelte-flow__edge')).toHaveCount(names.length - 1);
  await page.locator('.node').filter({ hasText: 'window' }).first().click();
  await expect(page.getByRole('complementary', { name: /Stage window/ })).toBeVisible();
  await expect(page).toHaveURL(/stage=/);
  await page.getByRole('button', { name: 'Table', exact: true }).click();
  const table = page.getByRole('table').first();
  for (const name of names) await expect(table).toContainText(name);
  await page.keyboard.press('Escape');
  await expect(page.getByRole('complementary')).toHaveCount(0);
});

test('arrow keys walk the graph along its edges', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/flowing');
  const nodes = page.locator('.svelte-flow__node');
  await expect(nodes.first()).toBeVisible();
  await nodes.first().focus();
  await page.keyboard.press('ArrowRight');
  const focused = page.locator('.svelte-flow__node:focus');
  await expect(focused).toHaveCount(1);
  await expect(focused).not.toContainText('orders 0');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('complementary')).toBeVisible();
});

test('why names the input that is silent, and offers its advice as a change that is shown', async ({ page, faults }) => {
  void faults;
  interface Answer { why: { verdict: string; holder: { name: string } }; sentence: string }
  const answer = await server.until<Answer>('v1/jobs/held/why', (found) => found.why.verdict === 'standing-still', 90);
  expect(answer.why.holder.name).toBe('manual');
  await open(page, server, '/jobs/held/why');
  const panel = page.getByRole('region', { name: 'The answer' });
  await expect(panel).toContainText('standing still');
  await expect(panel.getByRole('list')).toContainText('manual');
  await expect(page.getByText('without it')).toBeVisible();
  await page.getByRole('button', { name: 'Show this change in the editor' }).click();
  await expect(page.getByRole('region', { name: 'Changes' })).toContainText("added:SET 'watermark.idle-timeout'");
  // Nothing has changed yet.
  expect((await server.ask<Job>('GET', 'v1/jobs/held')).revision).toBe(1);
});

test('why can be asked about a moment that has passed', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/late/why');
  const slider = page.getByLabel('Moment');
  await expect(slider).toBeVisible();
  const oldest = Number(await slider.getAttribute('min'));
  await page.goto(`${server.url}/#/jobs/late/why?at=${oldest + 1000}`);
  await expect(page.getByRole('button', { name: 'Now' })).toBeVisible();
  await expect(page.getByRole('region', { name: 'The answer' })).toBeVisible();
});

test('late rows add up as REST says', async ({ page, faults }) => {
  void faults;
  await server.until<Job>('v1/jobs/late', (job) => job.late_rows > 100);
  await open(page, server, '/jobs/late/late');
  const sum = page.locator('.sum').first();
  await expect(sum).toContainText('late');
  const [accepted, late, ingested] = ((await sum.textContent()) ?? '').match(/[\d,]+/g)!.map((text) => Number(text.replaceAll(',', '')));
  expect(accepted! + late!).toBe(ingested);
  const job = await server.ask<Job>('GET', 'v1/jobs/late');
  expect(late).toBeGreaterThan(0);
  expect(late).toBeLessThanOrEqual(job.late_rows);
  // 16 pages, each late as often as the others.
  const top = page.getByRole('table', { name: /values of page that most/ });
  await expect(top.getByRole('row')).toHaveCount(11);
  await page.getByRole('combobox', { name: /late most, by/ }).selectOption('ts');
  await expect(page.getByRole('table', { name: /values of ts that most/ })).toBeVisible();
});

test('latency has a strip and percentiles', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/flowing/latency');
  const sink = page.getByRole('region', { name: 'Latency of totals' });
  await expect(sink.getByText('p99', { exact: true }).first()).toBeVisible();
  await expect(sink.getByRole('img', { name: /over time/ })).toBeVisible();
  const spent = sink.getByRole('table', { name: /Where the mean latency/ });
  await expect(spent.getByRole('row')).toHaveText([/^computing/, /^in queues/, /^writing/, /^waiting/]);
  // A snapshot that is taken meanwhile is drawn into it.
  await server.ask('POST', 'v1/jobs/flowing/snapshots');
  await expect(sink.getByText(/^snapshot/)).toBeVisible({ timeout: 30_000 });
});

test('a snapshot is taken, and its contents are shown', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/flowing/snapshots');
  await page.getByRole('button', { name: 'Take one now' }).click();
  await expect(page.getByRole('log', { name: 'Messages' })).toContainText(/snapshot \d+ is kept/);
  await expect(page.getByRole('cell', { name: 'manual' }).first()).toBeVisible();
  await page.getByRole('button', { name: 'Contents' }).first().click();
  await expect(page.getByRole('columnheader', { name: 'Columns' })).toBeVisible();
});

test('events and log lines are one time line', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/failing/events');
  const table = page.getByRole('table');
  await expect(table).toContainText('failed');
  await expect(table).toContainText('seven');
  await page.getByLabel('Filter lines').fill('planning');
  await expect(page.getByRole('row')).toHaveCount(2);
});

test('a failed job says why, and shows its plan', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/jobs/failing');
  await expect(page.getByRole('alert')).toContainText('payments.csv');
  await expect(page.locator('.node').filter({ hasText: 'payments' }).first()).toBeVisible();
  await expect(page.getByText('It does not run')).toBeVisible();
});

test('the editor underlines what is wrong and shows the plan of what is right', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/editor');
  const text = page.getByLabel('Statements', { exact: true });
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText("CREATE TABLE t (a INT) WITH ('connector' = 'datagen');\nSELECT b FROM t;");
  await expect(page.locator('.cm-lintRange-error')).toHaveText('b');
  await expect(page.getByRole('region', { name: 'Mistakes' })).toContainText('b');
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText("CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');\nSELECT a AS one FROM t;");
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await expect(page.getByRole('region', { name: 'Rows' }).getByRole('row')).toHaveCount(4);
});

test('completion knows tables, options and functions', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/editor');
  const text = page.getByLabel('Statements', { exact: true });
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText("SET 'water");
  await page.keyboard.press('Control+Space');
  await expect(page.locator('.cm-tooltip-autocomplete')).toContainText('watermark.idle-timeout');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText("CREATE TABLE t (first_name STRING) WITH ('connector' = 'datagen'); SELECT CHAR_LENGTH(t.fi");
  await page.keyboard.press('Control+Space');
  await expect(page.locator('.cm-tooltip-autocomplete')).toContainText('STRING of t');
  // A list takes no key in its first 75 ms, so that nobody accepts what has just appeared.
  await page.waitForTimeout(150);
  await page.keyboard.press('Enter');
  await expect(text).toContainText('CHAR_LENGTH(t.first_name');
});

test('a text is laid out, and its comments stay', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/editor');
  const text = page.getByLabel('Statements', { exact: true });
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText("SELECT 1   AS one -- the first\n  ;");
  await page.getByRole('button', { name: 'Format' }).click();
  await expect(text).toContainText('SELECT 1 AS one -- the first');
});

test('a job is made, stopped, changed and put away by the page', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/editor');
  const text = page.getByLabel('Statements', { exact: true });
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText(FLOWING);
  await page.getByLabel('Job').fill('made');
  await page.getByRole('button', { name: 'Save and start' }).click();
  await expect(page.getByRole('heading', { name: 'made' })).toBeVisible();
  await server.until<Job>('v1/jobs/made', (job) => job.state === 'running' && job.snapshot !== undefined);
  await page.getByRole('link', { name: 'Edit', exact: true }).click();
  await expect(text).toContainText('totals');
  await text.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.insertText(FLOWING.replace('SUM(amount)', 'MAX(amount)'));
  await page.getByRole('button', { name: 'Compare and change…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('added:SELECT item, MAX(amount), window_end');
  if (await dialog.getByRole('checkbox').count()) await dialog.getByRole('checkbox').check();
  await dialog.getByRole('button', { name: 'Change it' }).click();
  await server.until<Job>('v1/jobs/made', (job) => job.revision === 2 && job.state === 'running');
  await page.goto(`${server.url}/#/jobs/made/sql`);
  await expect(page.getByRole('region', { name: 'Text of the statements' })).toContainText('added:SELECT item, MAX(amount), window_end');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
  await server.until<Job>('v1/jobs/made', (job) => job.state === 'stopped');
  await page.getByRole('button', { name: 'Delete', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await expect(page.getByRole('heading', { name: 'Jobs' })).toBeVisible();
  await expect(page.getByRole('link', { name: 'made', exact: true })).toHaveCount(0);
});

test('keys alone lead everywhere', async ({ page, faults }) => {
  void faults;
  await open(page, server);
  await expect(page.getByRole('link', { name: 'flowing', exact: true })).toBeVisible();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('w');
  await expect(page).toHaveURL(/\/why$/);
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await expect(page.getByRole('heading', { name: 'Settings' })).toBeVisible();
  await page.keyboard.press('Control+k');
  await page.keyboard.insertText('flow');
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { name: 'flowing' })).toBeVisible();
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Keys' })).toContainText('take a snapshot');
  await page.keyboard.press('Escape');
  await page.keyboard.press('p');
  await expect(page.getByRole('log', { name: 'Messages' })).toContainText(/snapshot \d+ is kept/);
  await page.keyboard.press('g');
  await page.keyboard.press('j');
  await page.keyboard.press('/');
  await expect(page.getByLabel('Filter jobs')).toBeFocused();
});

test('settings show options with their origin, make tokens, and have the licences', async ({ page, faults }) => {
  void faults;
  await open(page, server, '/settings');
  await expect(page.getByRole('row', { name: /^workers/ })).toContainText('command line');
  await page.getByLabel('New token').fill('reader');
  await page.getByRole('button', { name: 'Make it' }).click();
  const token = (await page.locator('code.made').textContent()) ?? '';
  expect(token).toMatch(/^twt_/);
  await page.getByText('Licences of the packages').click();
  for (const name of ['svelte', '@xyflow/svelte', 'uplot', '@codemirror/view', '@dagrejs/dagre']) {
    await expect(page.locator('pre.licences')).toContainText(`${name} `);
  }
  // What a reader may not see is said, not hidden.
  await page.goto(`${server.url}/#token=${token}&to=/settings`);
  await page.reload();
  await expect(page.getByText('shown to a token of the role admin')).toBeVisible();
});

test('a materialized table is shown, and a condition chooses its rows', async ({ page, faults }) => {
  void faults;
  await server.submit('bank', BANK);
  await server.until<{ items: { rows?: number }[] }>('v1/jobs/bank/tables', (found) => found.items[0]?.rows === 3);
  await open(page, server, '/jobs/bank/tables');
  await expect(page.getByRole('heading', { name: 'bank.balances' })).toBeVisible();
  const rows = page.getByRole('region', { name: 'Rows of balances' }).getByRole('row');
  await expect(rows).toHaveCount(4);
  await page.getByLabel('WHERE').fill('account = 2');
  await page.getByRole('button', { name: 'Ask' }).click();
  await expect(rows).toHaveCount(2);
  await page.getByLabel('WHERE').fill('nobody = 1');
  await page.getByRole('button', { name: 'Ask' }).click();
  await expect(page.getByRole('alert')).toContainText('nobody');
});

test('dead letters are read again once the statements are mended', async ({ page, faults }) => {
  void faults;
  server.file('readings/first.csv', '20.5\nwarm\n19.5 C\n');
  await server.submit('thermometer', thermometer('DOUBLE', 'celsius'));
  await server.until<{ items: unknown[] }>('v1/jobs/thermometer/dead-letters', (found) => found.items.length === 2);
  await server.submit('thermometer', thermometer('STRING', "CAST(REPLACE(celsius, ' C', '') AS DOUBLE)"));
  await server.until<Job>('v1/jobs/thermometer', (job) => job.revision === 2 && job.state === 'running');
  await open(page, server, '/jobs/thermometer/late');
  const letters = page.getByRole('region', { name: 'Records that could not be read' });
  await expect(letters.getByRole('row')).toHaveCount(3);
  await letters.getByRole('row', { name: /19\.5 C/ }).getByRole('button').click();
  await expect(page.getByText('1 rows were read again, 0 could not be read')).toBeVisible();
  await expect(letters.getByRole('row')).toHaveCount(2);
});

/** Statements of the jobs that the page is tested with. */

export const FLOWING = `
CREATE TABLE orders (item STRING, amount INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '400', 'fields.item.length' = '1');
CREATE TABLE totals (item STRING, amount BIGINT, window_end TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO totals
SELECT item, SUM(amount), window_end
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY item, window_start, window_end;
`;

/** The input \`manual\` has a row of January and falls silent, so no window of today closes. */
export const HELD = `
SET 'watermark.idle-timeout' = '0 s';
CREATE TABLE sensors (device STRING, value_c DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '200', 'fields.device.length' = '2');
CREATE TABLE manual (device STRING, value_c DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'manual', 'format' = 'csv', 'source.monitor-interval' = '1 s');
CREATE TABLE minutes (device STRING, readings BIGINT, window_end TIMESTAMP(3)) WITH ('connector' = 'blackhole');
CREATE VIEW readings AS SELECT * FROM sensors UNION ALL SELECT * FROM manual;
INSERT INTO minutes
SELECT device, COUNT(*), window_end
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '60' SECOND))
GROUP BY device, window_start, window_end;
`;

export const LATE = `
CREATE TABLE clicks (page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '300', 'fields.page.length' = '1', 'fields.ts.max-past' = '8 s');
CREATE TABLE counts (page STRING, clicks BIGINT, window_end TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO counts
SELECT page, COUNT(*), window_end
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' SECOND))
GROUP BY page, window_start, window_end;
`;

/** The file has a word where a number belongs. */
export const FAILING = `
SET 'restart-strategy' = 'none';
CREATE TABLE payments (amount INT) WITH ('connector' = 'filesystem', 'path' = 'payments.csv', 'format' = 'csv');
CREATE TABLE sums (amount INT) WITH ('connector' = 'blackhole');
INSERT INTO sums SELECT amount FROM payments WHERE amount > 0;
`;

/** Keeps a table that can be asked. */
export const BANK = `
CREATE TABLE transfers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '1000000000');
CREATE MATERIALIZED TABLE balances (PRIMARY KEY (account) NOT ENFORCED) FRESHNESS = INTERVAL '1' SECOND
AS SELECT MOD(n, 3) AS account, COUNT(*) AS entries FROM transfers GROUP BY MOD(n, 3);
`;

/** Follows a file with a reading that is no number in statements that take none. */
export function thermometer(kind: string, value: string): string {
  return `
SET 'execution.checkpointing.interval' = '500 ms';
CREATE TABLE readings (celsius ${kind}) WITH ('connector' = 'filesystem', 'path' = 'readings', 'format' = 'csv',
  'source.monitor-interval' = '200 ms', 'bad-data' = 'dead-letter', 'dead-letter.path' = 'bad.jsonl');
CREATE TABLE kept (celsius DOUBLE) WITH ('connector' = 'blackhole');
INSERT INTO kept SELECT ${value} FROM readings;
`;
}

/** About 200 stages: many inputs that are filtered and come together. */
export function wide(inputs: number): string {
  const tables = Array.from({ length: inputs }, (_, number) => `
CREATE TABLE meters_${number} (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '2');`);
  const selects = Array.from({ length: inputs }, (_, number) => `SELECT id, window_end FROM (
  SELECT id, COUNT(*) AS n, window_end FROM TABLE(TUMBLE(TABLE meters_${number}, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY id, window_start, window_end)`);
  return `${tables.join('')}
CREATE TABLE all_meters (id INT, window_end TIMESTAMP(3)) WITH ('connector' = 'blackhole');
INSERT INTO all_meters
${selects.join('\nUNION ALL\n')};
`;
}

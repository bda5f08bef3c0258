import { describe, expect, it } from 'vitest';
import { completionsAt, declared } from '../../src/lib/completions';

const vocabulary = {
  functions: ['ABS'],
  settings: [{ name: 'watermark.idle-timeout', default: '0 s', about: 'silence' }],
  connectors: [
    { name: 'datagen', summary: 'rows out of nothing', options: [{ name: 'seed', kind: 'number', about: '' }], formats: [] },
    { name: 'filesystem', summary: 'files', options: [{ name: 'path', kind: 'text', about: '' }], formats: ['csv', 'json'] },
  ],
};
const labels = (text: string) => completionsAt(text, text.length, vocabulary).map((one) => one.label);

describe('completions', () => {
  it('know what the text declares', () => {
    const text = "CREATE TABLE orders (item STRING, price DECIMAL(10, 2), ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('connector' = 'datagen');\nCREATE VIEW v AS SELECT 1;";
    expect(declared(text)).toEqual({ tables: ['orders', 'v'], columns: [['item', 'orders STRING'], ['price', 'orders DECIMAL(10,'], ['ts', 'orders TIMESTAMP(3)']] });
    expect(labels(`${text} SELECT `)).toEqual(expect.arrayContaining(['orders', 'price', 'ABS', 'SELECT']));
  });
  it('know options where a text is written', () => {
    expect(labels("SET 'water")).toEqual(['watermark.idle-timeout']);
    expect(labels("CREATE TABLE t (a INT) WITH ('connector' = '")).toEqual(['datagen', 'filesystem']);
    expect(labels("CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', '")).toEqual(['connector', 'path']);
    expect(labels("CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'format' = '")).toEqual(['csv', 'json']);
    expect(labels("SELECT 'it")).toEqual([]);
    expect(labels("-- don't\nSELECT ")).toContain('ABS');
  });
});

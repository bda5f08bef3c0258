/** What can be written at a place of a text of statements: from the server's lists, and from the text itself. */

export interface Vocabulary {
  functions: string[];
  settings: { name: string; default: string; about: string }[];
  connectors: { name: string; summary: string; options: { name: string; kind: string; about: string }[]; formats: string[] }[];
}
export interface Suggestion {
  label: string;
  kind: 'keyword' | 'function' | 'type' | 'property' | 'variable';
  detail: string;
  info?: string;
}

export const KEYWORDS = `ADD ALL AND AS ASC BEGIN BETWEEN BY CASE CAST CREATE CROSS CUBE DELETE DESC DESCRIPTOR DISTINCT DROP ELSE END ENFORCED
EXCEPT EXECUTE EXISTS EXPLAIN FALSE FILTER FOR FROM FULL GROUP GROUPING HAVING HOP IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN
KEY LAG LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE NOT NULL OF ON OR ORDER OUTER OVER PARTITION PRIMARY RECURSIVE RESET RIGHT ROLLUP ROW ROWS
SELECT SESSION SET SETS SHOW STATEMENT SYSTEM_TIME TABLE TEMPORARY THEN TRUE TUMBLE CUMULATE UNION UNNEST UPDATE USING VALUES VIEW WATERMARK
WHEN WHERE WINDOW WITH WITHIN`.split(/\s+/);

export function completionsAt(text: string, offset: number, vocabulary: Vocabulary): Suggestion[] {
  const before = text.slice(0, offset);
  const statement = before.slice(before.lastIndexOf(';') + 1);
  if (isInText(statement)) return inText(statement, vocabulary);
  const names = declared(text);
  return [
    ...names.tables.map((label): Suggestion => ({ label, kind: 'variable', detail: 'table' })),
    ...names.columns.map(([label, detail]): Suggestion => ({ label, kind: 'property', detail })),
    ...vocabulary.functions.map((label): Suggestion => ({ label, kind: 'function', detail: 'function' })),
    ...KEYWORDS.map((label): Suggestion => ({ label, kind: 'keyword', detail: '' })),
  ];
}

/** True if a text begins here that has not ended: quotes are doubled within one. */
function isInText(statement: string): boolean {
  const code = statement.replace(/--[^\n]*/g, '');
  return (code.split("'").length - 1) % 2 === 1;
}

/** What a text can be: an option of SET, a connector, or an option of the connector that the table names. */
function inText(statement: string, { settings, connectors }: Vocabulary): Suggestion[] {
  if (/^\s*SET\s+'[^']*$/i.test(statement)) {
    return settings.map((one): Suggestion => ({ label: one.name, kind: 'property', detail: one.default, info: one.about }));
  }
  if (/'connector'\s*=\s*'[^']*$/i.test(statement)) {
    return connectors.map((one): Suggestion => ({ label: one.name, kind: 'type', detail: one.summary }));
  }
  const named = /'connector'\s*=\s*'([^']+)'/i.exec(statement)?.[1];
  const connector = connectors.find((one) => one.name === named);
  if (/'format'\s*=\s*'[^']*$/i.test(statement)) {
    return (connector?.formats ?? []).map((label): Suggestion => ({ label, kind: 'type', detail: 'format' }));
  }
  if (/=\s*'[^']*$/.test(statement) || !/\bWITH\s*\(/i.test(statement)) return [];
  const options = (connector?.options ?? []).map((one): Suggestion => ({ label: one.name, kind: 'property', detail: one.kind, info: one.about }));
  return [{ label: 'connector', kind: 'property', detail: 'which one' }, ...options];
}

/** Tables and views that a text declares, with the columns of tables. */
export function declared(text: string): { tables: string[]; columns: [string, string][] } {
  const tables: string[] = [];
  const columns = new Map<string, string>();
  for (const found of text.matchAll(/\bCREATE\s+(?:TEMPORARY\s+)?(TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?`?([\w.]+)`?\s*(\()?/gi)) {
    const name = found[2] ?? '';
    tables.push(name);
    if (found[1]?.toUpperCase() !== 'TABLE' || !found[3]) continue;
    for (const [column, type] of columnsOf(text.slice((found.index ?? 0) + found[0].length))) columns.set(column, `${name} ${type}`);
  }
  return { tables, columns: [...columns] };
}

/** The columns up to the parenthesis that ends the list. */
function columnsOf(list: string): [string, string][] {
  let depth = 0;
  let part = '';
  const parts: string[] = [];
  for (const letter of list) {
    if (letter === '(' || letter === '<') depth += 1;
    if (letter === ')' || letter === '>') depth -= 1;
    if (depth < 0) break;
    if (letter === ',' && depth === 0) {
      parts.push(part);
      part = '';
    } else part += letter;
  }
  parts.push(part);
  const isRule = /^(WATERMARK|PRIMARY|CONSTRAINT|UNIQUE)\b/i;
  return parts
    .map((one) => /^`?(\w+)`?\s+(.+)$/s.exec(one.trim()))
    .filter((one) => one !== null && !isRule.test(one[0]))
    .map((one) => [one?.[1] ?? '', (one?.[2] ?? '').split(/\s+/)[0] ?? '']);
}

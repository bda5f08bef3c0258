/** The editor of statements: CodeMirror with the parts that are used, loaded when somebody writes. */

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, type Completion, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { SQLDialect, sql } from '@codemirror/lang-sql';
import { HighlightStyle, bracketMatching, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, lintKeymap, setDiagnostics } from '@codemirror/lint';
import { EditorState, type Extension, type Text } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { CompleteAnswer, Diagnostic } from './api';

/** Words that are shown as such. */
const KEYWORDS = `ADD ALL AND AS ASC BEGIN BETWEEN BY CASE CAST CREATE CROSS CUBE DELETE DESC DESCRIPTOR DISTINCT DROP ELSE END ENFORCED
EXCEPT EXECUTE EXISTS EXPLAIN FALSE FILTER FOR FROM FULL GROUP GROUPING HAVING HOP IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN
KEY LAG LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE NOT NULL OF ON OR ORDER OUTER OVER PARTITION PRIMARY RECURSIVE RESET RIGHT ROLLUP ROW ROWS
SELECT SESSION SET SETS SHOW STATEMENT SYSTEM_TIME TABLE TEMPORARY THEN TRUE TUMBLE CUMULATE UNION UNNEST UPDATE USING VALUES VIEW WATERMARK
WHEN WHERE WINDOW WITH WITHIN`;

const flink = SQLDialect.define({
  keywords: KEYWORDS.toLowerCase(),
  types: 'bigint boolean bytes char date decimal double float int integer interval map array row multiset smallint string time timestamp timestamp_ltz tinyint varbinary varchar',
  backslashEscapes: false,
  doubleQuotedStrings: false,
  identifierQuotes: '`',
  operatorChars: '*+-%<>!=&|~^/',
  hashComments: false,
});

const colors = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--accent)', fontWeight: '550' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--good)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--warn)' },
  { tag: tags.typeName, color: 'var(--accent)' },
  { tag: [tags.lineComment, tags.blockComment], color: 'var(--ink-3)', fontStyle: 'italic' },
]);

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '13px', backgroundColor: 'var(--sheet)', color: 'var(--ink)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
  '.cm-content': { caretColor: 'var(--ink)', padding: '8px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--sheet)', color: 'var(--ink-3)', borderRight: '1px solid var(--line)' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in srgb, var(--accent) 6%, transparent)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'color-mix(in srgb, var(--accent) 26%, transparent)' },
  '.cm-tooltip': { backgroundColor: 'var(--sheet)', border: '1px solid var(--line-strong)', borderRadius: '4px', color: 'var(--ink)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent-soft)', color: 'var(--ink)' },
  '.cm-completionDetail': { color: 'var(--ink-3)', fontStyle: 'normal' },
  '.cm-diagnostic': { padding: '6px 10px', whiteSpace: 'pre-wrap' },
  '.cm-matchingBracket': { backgroundColor: 'var(--accent-soft)', outline: '1px solid var(--line-strong)' },
});

export interface Written {
  parent: HTMLElement;
  text: string;
  /** What can be written at a place, which is counted in characters. */
  complete: (text: string, offset: number) => Promise<CompleteAnswer>;
  onchange: (text: string) => void;
  onrun: () => void;
  onformat: () => void;
}

/** An editor in an element. */
export class SqlEditor {
  readonly view: EditorView;

  constructor({ parent, text, complete, onchange, onrun, onformat }: Written) {
    const nonce = document.querySelector<HTMLElement>('meta[name="nonce"]')?.nonce ?? '';
    const run = { key: 'Mod-Enter', run: () => (onrun(), true) };
    const layOut = { key: 'Shift-Alt-f', run: () => (onformat(), true) };
    const extensions: Extension = [
      EditorView.cspNonce.of(nonce),
      lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine(), EditorView.lineWrapping,
      sql({ dialect: flink, upperCaseKeywords: true }),
      autocompletion({ override: [(context) => completions(context, complete)] }),
      syntaxHighlighting(colors), look,
      // A note is underlined; a mistake is marked at the edge as well.
      lintGutter({ markerFilter: (all) => all.filter((one) => one.severity === 'error') }),
      keymap.of([run, layOut, ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ 'aria-label': 'Statements' }),
      EditorView.updateListener.of((update) => update.docChanged && onchange(update.state.doc.toString())),
    ];
    this.view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions }) });
  }

  /** Underlines what is wrong. */
  mark(diagnostics: Diagnostic[]) {
    const { doc } = this.view.state;
    const marks = diagnostics.map((one) => ({
      from: offset(doc, one.span?.start),
      to: Math.max(offset(doc, one.span?.end), offset(doc, one.span?.start)),
      severity: one.severity === 'error' ? ('error' as const) : ('info' as const),
      message: one.help ? `${one.message}\n${one.help}` : one.message,
    }));
    this.view.dispatch(setDiagnostics(this.view.state, marks));
  }

  replace(text: string) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  goTo(place: { line: number; utf16: number }) {
    const at = offset(this.view.state.doc, place);
    this.view.dispatch({ selection: { anchor: at }, scrollIntoView: true });
    this.view.focus();
  }

  destroy() {
    this.view.destroy();
  }
}

function offset(doc: Text, place: { line: number; utf16: number } | undefined): number {
  if (!place || place.line < 1 || place.line > doc.lines) return 0;
  const line = doc.line(place.line);
  return Math.min(line.to, line.from + Math.max(0, place.utf16 - 1));
}

/** What the server offers at a place; nothing where it does not answer. */
async function completions(context: CompletionContext, complete: Written['complete']) {
  const word = context.matchBefore(/[\w.`'-]*/);
  if (!word || (word.from === word.to && !context.explicit)) return null;
  const text = context.state.doc.toString();
  const before = [...text.slice(0, context.pos)];
  const found = await complete(text, before.length).catch(() => undefined);
  if (!found || context.aborted) return null;
  const options: Completion[] = found.items.map((one) => ({
    label: one.label, apply: one.insert, type: TYPES[one.kind] ?? 'text', detail: one.detail, ...(one.info ? { info: one.info } : {}),
  }));
  return { from: before.slice(0, found.from).join('').length, options, validFor: /^[\w.-]*$/ };
}

/** The pictures of CodeMirror for what the server names. */
const TYPES: Record<string, string> = {
  column: 'property', table: 'class', function: 'function', keyword: 'keyword', type: 'type', setting: 'property', option: 'property', value: 'constant',
};

/** The lines of two texts, with ` `, `-` or `+` in front: the longest lines in common stay. */
export function diffLines(before: string, after: string): string[] {
  const [old, fresh] = [before.split('\n'), after.split('\n')];
  let head = 0;
  while (head < old.length && head < fresh.length && old[head] === fresh[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < fresh.length - head && old.at(-1 - tail) === fresh.at(-1 - tail)) tail += 1;
  const middle = changed(old.slice(head, old.length - tail), fresh.slice(head, fresh.length - tail));
  const same = (lines: string[]) => lines.map((line) => ` ${line}`);
  return [...same(old.slice(0, head)), ...middle, ...same(tail > 0 ? old.slice(-tail) : [])];
}

const CELLS_MAX = 4_000_000;

function changed(old: string[], fresh: string[]): string[] {
  if (old.length * fresh.length > CELLS_MAX) return [...old.map((line) => `-${line}`), ...fresh.map((line) => `+${line}`)];
  // common[i][j]: how many lines old[i..] and fresh[j..] have in common at most.
  const common = Array.from({ length: old.length + 1 }, () => new Uint32Array(fresh.length + 1));
  const at = (i: number, j: number) => common[i]?.[j] ?? 0;
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = fresh.length - 1; j >= 0; j -= 1) {
      (common[i] as Uint32Array)[j] = old[i] === fresh[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const lines: string[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < fresh.length) {
    if (i < old.length && j < fresh.length && old[i] === fresh[j]) {
      lines.push(` ${old[i]}`);
      i += 1;
      j += 1;
    } else if (i < old.length && (j === fresh.length || at(i + 1, j) >= at(i, j + 1))) lines.push(`-${old[i++]}`);
    else lines.push(`+${fresh[j++]}`);
  }
  return lines;
}

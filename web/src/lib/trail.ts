const SPAN_MS = 15 * 60_000;
const POINTS = 60;
const STEP_MS = SPAN_MS / POINTS;

/** A number over the last 15 minutes, as the mean of each quarter of a minute: what a sparkline draws. */
export class Trail {
  #points: { step: number; sum: number; count: number }[] = [];

  add(atMs: number, value: number) {
    const step = Math.floor(atMs / STEP_MS);
    const last = this.#points.at(-1);
    if (last?.step === step) {
      last.sum += value;
      last.count += 1;
      return;
    }
    this.#points.push({ step, sum: value, count: 1 });
    while ((this.#points[0]?.step ?? step) <= step - POINTS) this.#points.shift();
  }

  /** Points of an SVG polyline in a box, newest to the right; empty until there are two. */
  line(width: number, height: number): string {
    const last = this.#points.at(-1);
    if (!last || this.#points.length < 2) return '';
    const values = this.#points.map((point) => point.sum / point.count);
    const top = Math.max(...values) || 1;
    const at = (point: { step: number }, value: number) => {
      const x = width - ((last.step - point.step) / (POINTS - 1)) * width;
      return `${x.toFixed(1)},${(height - 1 - (value / top) * (height - 2)).toFixed(1)}`;
    };
    return this.#points.map((point, place) => at(point, values[place] ?? 0)).join(' ');
  }
}

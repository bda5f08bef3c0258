/** How numbers and times are written. Each value has an exact form, which is shown on hover. */

const DASH = '–';
const OUTSIDE = 'out of range';
const RATE_UNITS = ['', ' k', ' M', ' G', ' T'];
const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `1.21 M`: three digits and a unit of 1,000. */
export function short(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return DASH;
  const [scaled, unit] = scale(value, 1000, RATE_UNITS);
  return digits(scaled) + unit;
}

/** `1.21 M/s` */
export function rate(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return DASH;
  return `${short(value)}/s`;
}

/** `12,345,678` */
export function exact(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return DASH;
  return value.toLocaleString('en-GB', { maximumFractionDigits: value < 100 ? 2 : 0 });
}

/** `45.2 MiB` */
export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return DASH;
  const [scaled, unit] = scale(value, 1024, BYTE_UNITS);
  return `${unit === 'B' ? Math.round(scaled) : digits(scaled)} ${unit}`;
}

/** `31 %` */
export function percent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return DASH;
  const value = share * 100;
  if (value > 0 && value < 0.5) return '<1 %';
  return `${Math.round(value)} %`;
}

/** `6 m 41 s`: the two largest units; `230 ms` below a second. */
export function span(ms: number | null | undefined): string {
  if (ms == null || !Number.isFinite(ms)) return DASH;
  const sign = ms < 0 ? '−' : '';
  const all = Math.abs(ms);
  if (all < 1) return all === 0 ? '0 s' : `${sign}<1 ms`;
  if (all < 1000) return `${sign}${Math.round(all)} ms`;
  if (all < 9950) return `${sign}${(all / 1000).toFixed(1)} s`;
  const seconds = Math.round(all / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  const shown = parts.slice(first, first + 2).filter(([count]) => count > 0);
  return sign + shown.map(([count, unit]) => `${count} ${unit}`).join(' ');
}

/** `10:03:12` in UTC, with the date unless it is today. */
export function time(ms: number | null | undefined, nowMs = Date.now()): string {
  if (ms == null || !Number.isFinite(ms)) return DASH;
  const text = iso(ms);
  if (text === OUTSIDE) return text;
  const isToday = text.slice(0, 10) === iso(nowMs).slice(0, 10);
  return isToday ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** `2026-01-01 10:03:12.000 UTC`, and the same where the reader is. */
export function exactTime(ms: number | null | undefined): string {
  if (ms == null || !Number.isFinite(ms)) return '';
  const local = new Date(ms).toLocaleString(undefined, { timeZoneName: 'short' });
  return `${iso(ms).replace('T', ' ').replace('Z', ' UTC')} (${local})`;
}

/** `1 row`, `2 rows` */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${exact(count)} ${count === 1 ? one : many}`;
}

function iso(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? OUTSIDE : date.toISOString();
}

function scale(value: number, step: number, units: string[]): [number, string] {
  let place = 0;
  let scaled = value;
  // 999.7 k would be written as 1,000 k.
  while (Math.abs(scaled) >= step - step / 2000 && place < units.length - 1) {
    scaled /= step;
    place += 1;
  }
  return [scaled, units[place] ?? ''];
}

function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size < 0.01) return '<0.01';
  if (size >= 99.95 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

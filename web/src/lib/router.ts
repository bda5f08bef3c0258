/** Addresses of views: `#/jobs/orders/why?at=5`. A pure pair of functions; `place.svelte.ts` follows the browser. */

export const JOB_TABS = ['graph', 'why', 'latency', 'late', 'snapshots', 'tables', 'events', 'sql'] as const;
export type JobTab = (typeof JOB_TABS)[number];

export type Place =
  | { view: 'jobs'; query: Query }
  | { view: 'job'; job: string; tab: JobTab; query: Query }
  | { view: 'editor'; job?: string; query: Query }
  | { view: 'settings'; query: Query }
  | { view: 'lost'; path: string; query: Query };
export type Query = Record<string, string>;

export function parse(hash: string): Place {
  const [path = '', search = ''] = hash.replace(/^#/, '').split('?');
  const query = Object.fromEntries(new URLSearchParams(search));
  const parts = path.split('/').filter((part) => part !== '').map(decode);
  const [view, job, tab = 'graph'] = parts;
  if (view === undefined || (view === 'jobs' && parts.length === 1)) return { view: 'jobs', query };
  if (view === 'jobs' && job && parts.length <= 3 && isTab(tab)) return { view: 'job', job, tab, query };
  if (view === 'editor' && parts.length <= 2) return job ? { view: 'editor', job, query } : { view: 'editor', query };
  if (view === 'settings' && parts.length === 1) return { view: 'settings', query };
  return { view: 'lost', path, query };
}

export function href(place: Place): string {
  const parts = partsOf(place).map(encodeURIComponent);
  const search = new URLSearchParams(place.query).toString();
  return `#/${parts.join('/')}${search ? `?${search}` : ''}`;
}

/** The same place with other parameters; an empty one is left out. */
export function withQuery(place: Place, changes: Record<string, string | undefined>): Place {
  const query = { ...place.query };
  for (const [name, value] of Object.entries(changes)) {
    if (value) query[name] = value;
    else delete query[name];
  }
  return { ...place, query };
}

/** The token of `#token=…`, and where to go then. */
export function tokenOf(hash: string): { token: string; to: string } | undefined {
  const found = /^#token=([^&]+)(?:&to=(.*))?$/.exec(hash);
  if (!found) return undefined;
  const to = decode(found[2] ?? '');
  return { token: decode(found[1] ?? ''), to: to.startsWith('/') ? `#${to}` : '#/jobs' };
}

function partsOf(place: Place): string[] {
  switch (place.view) {
    case 'job':
      return place.tab === 'graph' ? ['jobs', place.job] : ['jobs', place.job, place.tab];
    case 'editor':
      return place.job ? ['editor', place.job] : ['editor'];
    case 'lost':
      return place.path.split('/').filter((part) => part !== '');
    default:
      return [place.view];
  }
}

function isTab(text: string): text is JobTab {
  return (JOB_TABS as readonly string[]).includes(text);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

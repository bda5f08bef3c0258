// First of all: it takes the token out of the address.
import './session.svelte';
import { href, parse, withQuery, type Place } from './router';

class Location {
  current: Place = $state(parse(location.hash));

  constructor() {
    addEventListener('hashchange', () => (this.current = parse(location.hash)));
  }

  go(place: Place) {
    location.hash = href(place);
  }

  /** Changes parameters without a new entry in the history of the browser. */
  set(changes: Record<string, string | undefined>) {
    this.current = withQuery(this.current, changes);
    history.replaceState(null, '', href(this.current));
  }
}

export const place = new Location();
export const jobsPlace: Place = { view: 'jobs', query: {} };
export const jobPlace = (job: string): Place => ({ view: 'job', job, tab: 'graph', query: {} });

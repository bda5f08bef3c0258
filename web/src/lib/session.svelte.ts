import { tokenOf } from './router';

const KEY = 'thalweg-token';

/**
 * The token. It comes once in the fragment of the address, which is never sent and is taken out of the history,
 * and stays for as long as the tab.
 */
class Session {
  token = $state('');
  isRefused = $state(false);

  constructor() {
    const given = tokenOf(location.hash);
    if (given) {
      sessionStorage.setItem(KEY, given.token);
      history.replaceState(null, '', given.to);
    }
    this.token = sessionStorage.getItem(KEY) ?? '';
    this.isRefused = this.token === '';
    addEventListener('hashchange', () => {
      const later = tokenOf(location.hash);
      if (!later) return;
      history.replaceState(null, '', later.to);
      this.use(later.token);
      dispatchEvent(new HashChangeEvent('hashchange'));
    });
  }

  use(token: string) {
    this.token = token.trim();
    sessionStorage.setItem(KEY, this.token);
    this.isRefused = this.token === '';
  }

  /** The server does not know the token. */
  refuse() {
    this.isRefused = true;
  }

  leave() {
    sessionStorage.removeItem(KEY);
    this.token = '';
    this.isRefused = true;
  }
}

export const session = new Session();

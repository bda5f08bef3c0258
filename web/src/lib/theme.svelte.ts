export type Theme = 'system' | 'light' | 'dark';
const KEY = 'thalweg-theme';

class ThemeChoice {
  chosen: Theme = $state('system');
  /** Counts changes of what is shown, for what draws its colours itself. */
  version = $state(0);
  #system = matchMedia('(prefers-color-scheme: dark)');

  constructor() {
    const kept = localStorage.getItem(KEY);
    if (kept === 'light' || kept === 'dark') this.chosen = kept;
    this.#system.addEventListener('change', () => this.#apply());
    this.#apply();
  }

  choose(theme: Theme) {
    this.chosen = theme;
    if (theme === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
    this.#apply();
  }

  get isDark() {
    return this.chosen === 'dark' || (this.chosen === 'system' && this.#system.matches);
  }

  #apply() {
    document.documentElement.dataset.theme = this.isDark ? 'dark' : 'light';
    this.version += 1;
  }
}

export const theme = new ThemeChoice();

import { untrack } from 'svelte';

/** Keys of one letter, and of two as in `g j`. They do nothing while a person writes. */
export interface Binding {
  keys: string;
  about: string;
  run: () => void;
}

const PAIR_MS = 1200;

class Keys {
  #layers: Binding[][] = $state.raw([]);
  #first = '';
  #firstMs = 0;

  start() {
    addEventListener('keydown', (event) => this.#press(event));
  }

  get all(): Binding[] {
    return this.#layers.flat();
  }

  /** Keys of a view, while it is there. To be called while a component begins. */
  use(bindings: Binding[]) {
    $effect(() => {
      untrack(() => (this.#layers = [...this.#layers, bindings]));
      return () => untrack(() => (this.#layers = this.#layers.filter((layer) => layer !== bindings)));
    });
  }

  #press(event: KeyboardEvent) {
    if (event.defaultPrevented || event.altKey || event.metaKey) return;
    if (event.ctrlKey) {
      if (event.key === 'k') this.#run('Ctrl-K', event);
      return;
    }
    if (isWriting(event.target) || document.querySelector('dialog[open]')) return;
    const pair = event.timeStamp - this.#firstMs < PAIR_MS ? `${this.#first} ${event.key}` : '';
    this.#first = '';
    if (pair && this.#run(pair, event)) return;
    if (this.#run(event.key, event)) return;
    this.#first = event.key;
    this.#firstMs = event.timeStamp;
  }

  #run(keys: string, event: KeyboardEvent): boolean {
    const found = this.all.findLast((binding) => binding.keys === keys);
    if (!found) return false;
    event.preventDefault();
    found.run();
    return true;
  }
}

function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
}

export const keys = new Keys();

import { untrack } from 'svelte';

/**
 * Asks again and again while the view is there and the tab is seen, one question at a time. To be called while a
 * component begins; when what `anew` reads changes, it asks at once.
 */
export function poll(everyMs: number, ask: (signal: AbortSignal) => Promise<void>, anew: () => unknown = () => {}) {
  $effect(() => {
    anew();
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const turn = async () => {
      if (!document.hidden) await ask(abort.signal).catch(() => {});
      if (!abort.signal.aborted) timer = setTimeout(turn, everyMs);
    };
    untrack(() => void turn());
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  });
}

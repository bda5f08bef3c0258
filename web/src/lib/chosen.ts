import { getContext } from 'svelte';
import type { WatchedJob } from './watched.svelte';

/** The job of the view that a component is part of. */
export const watchedJob = () => getContext<WatchedJob>('job');

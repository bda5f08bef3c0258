import { getContext } from 'svelte';
import { edgesOf, type JobReading, type StageEdge, type StageReading, type Why } from './reading';

/** The numbers of stages, for nodes and edges that stay the same ones while the numbers change. */
export class GraphState {
  stages: Map<string, StageReading> = $state.raw(new Map());
  reading: JobReading | undefined = $state.raw();
  /** Identifiers from the sink to what holds it back. */
  path: string[] = $state.raw([]);
  isHeld = $state(false);
  /** The split that holds; empty where it is a stage or an input without splits. */
  split = $state('');
  /** Changes with the shape alone. */
  shape: { stages: { id: string; name: string }[]; edges: StageEdge[] } = $state.raw({ stages: [], edges: [] });
  #key = '';

  take(reading: JobReading | undefined) {
    if (!reading) return;
    this.reading = reading;
    this.stages = new Map(reading.stages.map((stage) => [stage.id, stage]));
    const edges = edgesOf(reading.stages);
    const key = JSON.stringify([reading.stages.map((stage) => stage.id), edges]);
    if (key === this.#key) return;
    this.#key = key;
    this.shape = { stages: reading.stages.map(({ id, name }) => ({ id, name })), edges };
  }

  setPath(why: Why) {
    const ids = why.path.map((place) => this.reading?.stages[place]?.id ?? '');
    if (ids.join() !== this.path.join()) this.path = ids;
    this.isHeld = why.verdict === 'standing-still';
    this.split = why.holder.split?.[1] ?? '';
  }

  isOnPath(edge: { source: string; target: string }): boolean {
    const place = this.path.indexOf(edge.target);
    return place >= 0 && this.path[place + 1] === edge.source;
  }
}

export const graphState = () => getContext<GraphState>('graph');

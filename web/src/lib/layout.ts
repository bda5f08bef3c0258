import dagre from '@dagrejs/dagre';

export const NODE_WIDTH = 208;
export const NODE_HEIGHT = 104;

export interface Box {
  id: string;
  height?: number;
}
export interface Style {
  width?: number;
  /** From top to bottom, where there is little room. */
  isDown?: boolean;
}
export interface Placed {
  x: number;
  y: number;
}
export interface Layout {
  places: Map<string, Placed>;
  width: number;
  height: number;
}

const known = new Map<string, Layout>();
const KNOWN_MAX = 20;

/** Where the stages of a graph stand, from left to right. The same graph is laid out once, so that nothing jumps. */
export function layout(boxes: Box[], edges: { from: string; to: string }[], style: Style = {}): Layout {
  const key = JSON.stringify([style, boxes.map((box) => [box.id, box.height]), edges.map((edge) => [edge.from, edge.to])]);
  let found = known.get(key);
  if (!found) {
    found = place(boxes, edges, style);
    if (known.size >= KNOWN_MAX) known.delete(known.keys().next().value as string);
    known.set(key, found);
  }
  return found;
}

function place(boxes: Box[], edges: { from: string; to: string }[], style: Style): Layout {
  const { width = NODE_WIDTH, isDown = false } = style;
  const graph = new dagre.graphlib.Graph();
  const gaps = isDown ? { nodesep: 16, ranksep: 26, margin: 4 } : { nodesep: 28, ranksep: 100, margin: 16 };
  const { nodesep, ranksep, margin } = gaps;
  graph.setGraph({ rankdir: isDown ? 'TB' : 'LR', nodesep, ranksep, marginx: margin, marginy: margin });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width, height: box.height ?? NODE_HEIGHT });
  for (const edge of edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const places = new Map<string, Placed>();
  for (const box of boxes) {
    const node = graph.node(box.id);
    // dagre names the middle of a node.
    places.set(box.id, { x: (node.x ?? 0) - width / 2, y: (node.y ?? 0) - (box.height ?? NODE_HEIGHT) / 2 });
  }
  const size = graph.graph();
  return { places, width: size.width ?? 0, height: size.height ?? 0 };
}

/** The stage that an arrow key leads to: along edges to the sides, and to the neighbour above or below. */
export function neighbour(
  of: Layout,
  edges: { from: string; to: string }[],
  id: string,
  key: 'ArrowLeft' | 'ArrowRight' | 'ArrowUp' | 'ArrowDown',
): string | undefined {
  const own = of.places.get(id);
  if (!own) return undefined;
  const nearest = (ids: string[]) => ids.sort((a, b) => distance(of, own, a) - distance(of, own, b))[0];
  if (key === 'ArrowRight') return nearest(edges.filter((edge) => edge.from === id).map((edge) => edge.to));
  if (key === 'ArrowLeft') return nearest(edges.filter((edge) => edge.to === id).map((edge) => edge.from));
  const isThere = (y: number) => (key === 'ArrowUp' ? y < own.y : y > own.y);
  const column = [...of.places].filter(([other, at]) => other !== id && at.x === own.x && isThere(at.y));
  return nearest(column.map(([other]) => other));
}

function distance(of: Layout, from: Placed, id: string): number {
  const to = of.places.get(id) ?? from;
  return Math.abs(to.y - from.y);
}

/** How thick an edge is for its rows a second: the logarithm, between 1.5 and 7. */
export function edgeWidth(rowsPerSecond: number): number {
  return Math.min(7, 1.5 + Math.log10(1 + Math.max(0, rowsPerSecond)) * 0.9);
}

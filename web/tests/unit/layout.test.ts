import { describe, expect, it } from 'vitest';
import { NODE_HEIGHT, NODE_WIDTH, edgeWidth, layout, neighbour } from '../../src/lib/layout';

const boxes = ['a', 'b', 'union', 'sink'].map((id) => ({ id }));
const edges = [{ from: 'a', to: 'union' }, { from: 'b', to: 'union' }, { from: 'union', to: 'sink' }];

describe('the layout of a graph', () => {
  it('goes from left to right along the edges', () => {
    const { places } = layout(boxes, edges);
    for (const { from, to } of edges) expect(places.get(from)!.x + NODE_WIDTH).toBeLessThan(places.get(to)!.x);
  });
  it('puts no stage on another', () => {
    const many = Array.from({ length: 200 }, (_, number) => ({ id: `s${number}` }));
    const chains = many.slice(0, 150).map((box, number) => ({ from: box.id, to: `s${150 + (number % 50)}` }));
    const all = [...layout(many, chains).places.values()];
    for (const [place, one] of all.entries()) {
      for (const other of all.slice(place + 1)) {
        expect(Math.abs(one.x - other.x) >= NODE_WIDTH || Math.abs(one.y - other.y) >= NODE_HEIGHT).toBe(true);
      }
    }
  });
  it('is made once for the same graph', () => {
    expect(layout([...boxes], [...edges])).toBe(layout(boxes, edges));
  });
  it('leads arrow keys along edges and to neighbours', () => {
    const of = layout(boxes, edges);
    expect(neighbour(of, edges, 'a', 'ArrowRight')).toBe('union');
    expect(neighbour(of, edges, 'sink', 'ArrowLeft')).toBe('union');
    const upper = of.places.get('a')!.y < of.places.get('b')!.y ? 'a' : 'b';
    const lower = upper === 'a' ? 'b' : 'a';
    expect(neighbour(of, edges, upper, 'ArrowDown')).toBe(lower);
    expect(neighbour(of, edges, upper, 'ArrowUp')).toBeUndefined();
  });
  it('draws edges thicker the more rows they carry, within bounds', () => {
    const widths = [0, 10, 1000, 1e6, 1e12].map(edgeWidth);
    expect(widths).toEqual([...widths].sort((a, b) => a - b));
    expect(widths.at(-1)).toBe(7);
  });
});

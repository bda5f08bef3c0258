import { describe, expect, it } from 'vitest';
import { href, parse, tokenOf, withQuery, type Place } from '../../src/lib/router';

describe('addresses', () => {
  it('come back as they went', () => {
    const places: Place[] = [
      { view: 'jobs', query: { q: 'state:failed a b' } },
      { view: 'job', job: 'orders', tab: 'graph', query: { stage: 'a/b→c' } },
      { view: 'job', job: 'a.b_c-1', tab: 'why', query: { at: '5' } },
      { view: 'editor', query: {} },
      { view: 'editor', job: 'orders', query: {} },
      { view: 'settings', query: {} },
    ];
    for (const place of places) expect(parse(href(place))).toEqual(place);
  });
  it('without a meaning are lost, not an error', () => {
    for (const hash of ['#/nothing', '#/jobs/a/nothing', '#/jobs/a/why/more', '#/settings/x', '#/jobs/%ff/x']) {
      expect(parse(hash).view).toBe('lost');
    }
    expect(parse('')).toEqual({ view: 'jobs', query: {} });
  });
  it('leave empty parameters out', () => {
    const place = withQuery({ view: 'jobs', query: { q: 'x', sort: 'in' } }, { q: '', down: '1' });
    expect(href(place)).toBe('#/jobs?sort=in&down=1');
  });
  it('bring a token along once, and lead nowhere else', () => {
    expect(tokenOf('#token=twt_1')).toEqual({ token: 'twt_1', to: '#/jobs' });
    expect(tokenOf('#token=twt_1&to=%2Fjobs%2Fa')).toEqual({ token: 'twt_1', to: '#/jobs/a' });
    expect(tokenOf('#token=x&to=https://evil.example')?.to).toBe('#/jobs');
    expect(tokenOf('#/jobs')).toBeUndefined();
  });
});

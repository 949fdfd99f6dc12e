import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HOME, parseView, type View, viewLink } from './link-state.ts';

const views: readonly View[] = [
  HOME,
  { ...HOME, namespace: 'shop' },
  { ...HOME, namespace: 'shop', service: 'shop/web', search: 'a&b=c #ü' },
  { page: 'path', from: 'default/client', to: 'http://web.shop/', family: 'ipv6' },
  { page: 'path', from: '', to: '', family: 'any' },
  { page: 'shell', pod: 'shop/web-1', container: 'app' },
  { page: 'shell', pod: null, container: null },
  { page: 'modes', service: 'shop/web' },
  { page: 'faults' },
  { page: 'lessons', lesson: 'pods' },
];
for (const view of views) {
  test(`${viewLink(view)} leads to the same view`, () => assert.deepEqual(parseView(viewLink(view)), view));
}

const rows = [
  { fragment: '', what: 'no fragment', view: HOME },
  { fragment: '#nothing?x=1', what: 'an unknown page', view: { page: 'unknown', name: 'nothing' } },
  { fragment: '#Map', what: 'a page in capitals', view: { page: 'unknown', name: 'Map' } },
  { fragment: `#${'x'.repeat(999)}`, what: 'a long name', view: { page: 'unknown', name: 'x'.repeat(60) } },
  { fragment: '#?ns=shop', what: 'no page', view: { ...HOME, namespace: 'shop' } },
  {
    fragment: '#path?family=ipx&from=a',
    what: 'an unknown family',
    view: { page: 'path', from: 'a', to: '', family: 'any' },
  },
  { fragment: '#%%%', what: 'a malformed fragment', view: { page: 'unknown', name: '%%%' } },
];
for (const { fragment, what, view } of rows) {
  test(`${what} (${fragment}) is read`, () => assert.deepEqual(parseView(fragment), view));
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceView } from '../view.ts';
import { suggestedUrl } from './suggested-request.ts';

const service = (name: string, ports: readonly string[], extra: Partial<ServiceView> = {}): ServiceView => ({
  ...{ name, type: 'ClusterIP', addresses: [], externalAddresses: [], ports },
  ...{ hasSelector: true, isOnNodes: false },
  endpoints: [{ addresses: ['10.244.0.2'], pod: 'default/a', node: 'node-1', state: 'ready' }],
  ...extra,
});
const API = service('default/kubernetes', ['443/TCP']);
const DNS = service('kube-system/kube-dns', ['53/UDP', '53/TCP'], { isOnNodes: true, endpoints: [] });
const WEB = service('shop/web', ['80:30080/TCP']);

const ROWS: readonly (readonly [
  what: string,
  all: ServiceView[],
  chosen: string | null,
  url: string | null,
])[] = [
  ['the first that answers requests', [API, DNS, WEB], null, 'http://web.shop'],
  ['the chosen one, at its own port', [WEB, service('a/b', ['9/UDP', '8080/TCP'])], 'a/b', 'http://b.a:8080'],
  ['port 80, if it has more', [service('a/b', ['9000/TCP', '80/TCP'])], null, 'http://b.a'],
  ['another than the chosen one, which cannot answer', [DNS, WEB], DNS.name, 'http://web.shop'],
  ['none without endpoints', [service('a/b', ['80/TCP'], { endpoints: [] })], 'a/b', null],
  ['none of UDP alone', [service('a/b', ['80/UDP'])], null, null],
  ['none in a new cluster', [API, DNS], null, null],
];
for (const [what, all, chosen, url] of ROWS) {
  test(`requests to suggest: ${what}`, () => assert.equal(suggestedUrl(all, chosen), url));
}

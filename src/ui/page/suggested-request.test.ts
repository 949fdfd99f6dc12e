import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceView } from '../view.ts';
import { suggestTraffic } from './suggested-request.ts';

const service = (name: string, ports: readonly string[], extra: Partial<ServiceView> = {}): ServiceView => ({
  ...{ name, type: 'ClusterIP', addresses: [], externalAddresses: [], ports },
  httpPorts: ports.flatMap((text) => (/^(?:80|8080)\b.*\/TCP$/.test(text) ? Number.parseInt(text, 10) : [])),
  ...{ hasSelector: true, isOnNodes: false },
  endpoints: [{ addresses: ['10.244.0.2'], pod: 'default/a', node: 'node-1', state: 'ready' }],
  ...extra,
});
const API = service('default/kubernetes', ['443/TCP']);
const DNS = service('kube-system/kube-dns', ['53/UDP', '53/TCP'], { isOnNodes: true, endpoints: [] });
const REDIS = service('shop/redis', ['6379/TCP']);
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
  ['HTTP before other protocols', [REDIS, WEB], null, 'http://web.shop'],
  ['no HTTP to a Service of another protocol', [REDIS, WEB], REDIS.name, null],
  ['none in a new cluster', [API, DNS], null, null],
];
for (const [what, all, chosen, url] of ROWS) {
  test(`requests to suggest: ${what}`, () => assert.equal(suggestTraffic(all, chosen)?.url ?? null, url));
}

test('a packet to suggest to a Service that does not answer HTTP', () => {
  assert.deepEqual(suggestTraffic([REDIS], null), { url: null, target: 'svc/shop/redis:6379' });
  assert.deepEqual(suggestTraffic([service('a/b', ['53/UDP'])], null), null);
});

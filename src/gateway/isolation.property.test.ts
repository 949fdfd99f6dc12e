import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRandom, type Random } from '../service/testing/random.ts';
import { attach } from './attach.ts';
import { decide } from './decide.ts';
import type { GatewayObject, GatewayObjects } from './objects.ts';
import { list, record } from './raw.ts';
import { indexRoutes } from './route-index.ts';
import { gateway, listener, object, outcome, tlsListener } from './testing/objects.ts';
import { randomRequest, randomRoutes } from './testing/random-routes.ts';

const REQUESTS_PER_MAP = 8;
const namespaceOf = ({ metadata }: GatewayObject) => metadata?.namespace ?? '';

/** The objects of namespace default; its listeners take routes of their own namespace only. */
function ownObjects(objects: GatewayObjects): GatewayObjects {
  const own = (objects: readonly GatewayObject[]) => objects.filter((one) => namespaceOf(one) === 'default');
  const gateways = objects.gateways.map((one) => ({
    ...one,
    spec: {
      ...record(one.spec),
      listeners: list(record(one.spec)['listeners']).map((item) => ({ ...record(item), allowedRoutes: {} })),
    },
  }));
  return {
    ...objects,
    gateways,
    httpRoutes: own(objects.httpRoutes),
    referenceGrants: own(objects.referenceGrants),
  };
}

/** Adds what somebody with every right in namespace other, and none elsewhere, can write: valid, odd and in the way. */
function withForeign(own: GatewayObjects, random: Random): GatewayObjects {
  const parent = { name: 'gw', namespace: 'default' };
  const foreign = (name: string, spec: unknown) => object(name, spec, { namespace: 'other', age: -1 });
  const take = (objects: readonly GatewayObject[]) =>
    objects.map((one) => ({ ...one, metadata: { ...one.metadata, namespace: 'other' } }));
  const odd = [null, 7, '', 'default', [], {}, { name: 'gw' }, [{ name: 'gw', namespace: 'default' }]];
  const strange = () =>
    Object.fromEntries(
      ['parentRefs', 'hostnames', 'rules', 'targetRefs', 'from', 'to', 'listeners', 'parentRef'].map(
        (field) => [field, random.pick(odd)],
      ),
    );
  const everything = {
    from: [{ group: 'gateway.networking.k8s.io', kind: 'HTTPRoute', namespace: 'other' }],
    to: [{ group: '', kind: 'Service' }],
  };
  const rule = { backendRefs: [{ name: 'a', namespace: random.pick(['default', 'other']), port: 80 }] };
  return {
    ...own,
    httpRoutes: [
      ...own.httpRoutes,
      ...take(randomRoutes(random).httpRoutes),
      foreign('x', { parentRefs: [parent], rules: [rule] }),
      foreign('y', strange()),
    ],
    grpcRoutes: [foreign('x', { parentRefs: [parent], rules: [rule] }), foreign('y', strange())],
    tlsRoutes: [foreign('x', { parentRefs: [parent], rules: [rule] }), foreign('y', strange())],
    tcpRoutes: [foreign('x', { parentRefs: [parent], rules: [rule] })],
    gateways: [
      ...own.gateways,
      { ...gateway('gw', [listener('all'), tlsListener('s', undefined)], { namespace: 'other', age: -1 }) },
      foreign('g', { gatewayClassName: 'fairlead', ...strange() }),
    ],
    listenerSets: [
      foreign('x', {
        parentRef: parent,
        listeners: [listener('l', { hostname: 'a.example' }), listener('tcp', { protocol: 'TCP' })],
      }),
      foreign('y', strange()),
    ],
    referenceGrants: [...own.referenceGrants, foreign('x', everything), foreign('y', strange())],
    backendTlsPolicies: [
      foreign('x', { targetRefs: [{ group: '', kind: 'Service', name: 'a' }], validation: {} }),
      foreign('y', strange()),
    ],
  };
}

test('objects of one namespace change no decision, and no condition, of another that grants it nothing', () => {
  const cases = Number(process.env['FAIRLEAD_PROPERTY_CASES'] ?? 20_000);
  let forwarded = 0;
  for (let i = 0; i < cases / REQUESTS_PER_MAP; i++) {
    const random = createRandom(i);
    const own = ownObjects(randomRoutes(random));
    const before = attach(own);
    const after = attach(withForeign(own, random));
    const statuses = (attached: typeof before) =>
      attached.statuses.filter(({ namespace }) => namespace === 'default');
    assert.deepEqual(statuses(after), statuses(before), `case ${i}`);
    const [alone, beside] = [indexRoutes(before.routeMap), indexRoutes(after.routeMap)];
    for (let j = 0; j < REQUESTS_PER_MAP; j++) {
      const request = randomRequest(random);
      const expected = decide(alone, request);
      if (expected.kind === 'forward') forwarded++;
      assert.deepEqual(decide(beside, request), expected, `case ${i}: ${outcome(expected)}`);
    }
  }
  assert.ok(forwarded > cases / 10, `${forwarded} of ${cases} were forwarded`);
});

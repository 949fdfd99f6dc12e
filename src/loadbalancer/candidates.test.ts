import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Handlers } from '../kube/followed-objects.ts';
import type { Informer } from '../kube/informer.ts';
import { ADDRESS_ALLOCATED } from '../kube/load-balancer.ts';
import type { EndpointSlice, Node, Service } from '../kube/types.ts';
import {
  type Candidates,
  followCandidates,
  mayAnnounce,
  serviceOfSlice,
  wantedAddresses,
} from './candidates.ts';

type Spec = NonNullable<Service['spec']>;

function service(
  name: string,
  ips: string[],
  spec: Partial<Spec> = {},
  more: Partial<Service['metadata']> = {},
): Service {
  return {
    metadata: { namespace: 'default', name, ...more },
    spec: { type: 'LoadBalancer', ...spec },
    status: {
      conditions: [
        { type: ADDRESS_ALLOCATED, status: 'True', reason: '', message: '', lastTransitionTime: '' },
      ],
      loadBalancer: { ingress: ips.map((ip) => ({ ip, ipMode: 'VIP' })) },
    },
  };
}

/** Endpoints as "node", "node:unready", "node:terminating". */
function slice(owner: string, ...endpoints: string[]): EndpointSlice {
  return {
    metadata: { namespace: 'default', name: `${owner}-x`, labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    endpoints: endpoints.map((text, i) => {
      const [nodeName = '', state] = text.split(':');
      const conditions =
        state === 'unready'
          ? { ready: false, serving: false, terminating: false }
          : state === 'terminating'
            ? { ready: false, serving: true, terminating: true }
            : {};
      return { addresses: [`10.0.0.${i}`], nodeName, conditions };
    }),
  };
}

const LOCAL = { externalTrafficPolicy: 'Local' };
const rows: {
  name: string;
  services: Service[];
  slices?: EndpointSlice[];
  is: Record<string, string[] | null>;
}[] = [
  {
    name: 'with policy Cluster every node may announce, with or without endpoints',
    services: [service('web', ['192.0.2.1', 'fd00::1'])],
    is: { '192.0.2.1': null, 'fd00::1': null },
  },
  {
    name: 'with policy Local nodes with a ready endpoint may announce',
    services: [service('web', ['192.0.2.1'], LOCAL)],
    slices: [slice('web', 'n1', 'n2:unready', 'n3')],
    is: { '192.0.2.1': ['n1', 'n3'] },
  },
  {
    name: 'without ready endpoints, nodes with terminating endpoints that still serve may announce',
    services: [service('web', ['192.0.2.1'], LOCAL)],
    slices: [slice('web', 'n1:terminating', 'n2:unready')],
    is: { '192.0.2.1': ['n1'] },
  },
  {
    name: 'with a ready endpoint, nodes with terminating endpoints may not announce',
    services: [service('web', ['192.0.2.1'], LOCAL)],
    slices: [slice('web', 'n1:terminating', 'n2')],
    is: { '192.0.2.1': ['n2'] },
  },
  {
    name: 'without endpoints no node may',
    services: [service('web', ['192.0.2.1'], LOCAL)],
    is: { '192.0.2.1': [] },
  },
  {
    name: 'a shared address needs a node with endpoints of all its Services',
    services: [
      service('a', ['192.0.2.1'], LOCAL),
      service('b', ['192.0.2.1'], LOCAL),
      service('c', ['192.0.2.1']),
    ],
    slices: [slice('a', 'n1', 'n2'), slice('b', 'n2', 'n3')],
    is: { '192.0.2.1': ['n2'] },
  },
  {
    name: 'Services being deleted are ignored',
    services: [service('web', ['192.0.2.1'], {}, { deletionTimestamp: '2026-01-01T00:00:00Z' })],
    is: {},
  },
  {
    name: "other load balancers' addresses are left alone",
    services: [{ ...service('web', []), status: { loadBalancer: { ingress: [{ ip: '192.0.2.1' }] } } }],
    is: {},
  },
  {
    name: 'addresses whose packets arrive with the node as destination need no announcement',
    services: [
      {
        ...service('web', []),
        status: {
          ...service('web', []).status,
          loadBalancer: { ingress: [{ ip: '192.0.2.1', ipMode: 'Proxy' }] },
        },
      },
    ],
    is: {},
  },
];
for (const { name, services, slices = [], is } of rows) {
  test(name, () => {
    const wanted = wantedAddresses(services, (namespace, owner) =>
      slices.filter((one) => serviceOfSlice(one).includes(`${namespace}/${owner}`)),
    );
    const found = [...wanted].map(([address, { nodes }]) => [address, nodes && [...nodes].sort()]);
    assert.deepEqual(Object.fromEntries(found), is);
  });
}

const node = (ready: string, labels = {}, deleted?: string): Node => ({
  metadata: { name: 'n1', labels, ...(deleted ? { deletionTimestamp: deleted } : {}) },
  status: { conditions: [{ type: 'Ready', status: ready }] },
});
const nodes: { name: string; node: Node | undefined; may: boolean }[] = [
  { name: 'a node that is Ready', node: node('True'), may: true },
  { name: 'a node that is not Ready', node: node('False'), may: false },
  { name: 'a node that has not reported', node: node('Unknown'), may: false },
  {
    name: 'a node excluded by its label',
    node: node('True', { 'node.kubernetes.io/exclude-from-external-load-balancers': '' }),
    may: false,
  },
  { name: 'a node that is being deleted', node: node('True', {}, '2026-01-01T00:00:00Z'), may: false },
  { name: 'a node that does not exist', node: undefined, may: false },
];
for (const { name, node: one, may } of nodes) {
  test(`${name} ${may ? 'may announce' : 'announces nothing'}`, () => assert.equal(mayAnnounce(one), may));
}

test('an election is told of changes alone, not of every report of a node', async () => {
  const told: Candidates[] = [];
  const held = { nodes: [] as Node[], services: [] as Service[] };
  const handlers: { nodes?: Handlers<Node>; services?: Handlers<Service> } = {};
  const informer = <T>(list: () => T[], handle: (given: Handlers<T>) => void): Informer<T> => ({
    get: () => undefined,
    list,
    byIndex: () => [],
    addIndex: () => {},
    handle(given) {
      handle(given);
      return () => {};
    },
    synced: Promise.resolve(),
    hasSynced: true,
    record: () => {},
    lastContact: 0,
    cachedAt: null,
  });
  const end = followCandidates(
    {
      nodes: informer(
        () => held.nodes,
        (given) => {
          handlers.nodes = given;
        },
      ),
      services: informer(
        () => held.services,
        (given) => {
          handlers.services = given;
        },
      ),
      slices: informer<EndpointSlice>(
        () => [],
        () => {},
      ),
    },
    (candidates) => told.push(candidates),
  );
  const turn = async () => {
    await new Promise((resolve) => setImmediate(resolve));
    await new Promise((resolve) => setImmediate(resolve));
    return told.splice(0);
  };
  const [first] = await turn();
  assert.deepEqual(first, { wanted: new Map(), nodes: new Set() });
  handlers.nodes?.onAdd?.(node('True'));
  assert.deepEqual(
    (await turn()).map((one) => [...one.nodes]),
    [['n1']],
  );
  handlers.nodes?.onUpdate?.(node('True', { other: 'label' }), node('True'));
  assert.deepEqual(await turn(), []);
  held.services = [service('web', ['192.0.2.1'])];
  for (let i = 0; i < 3; i++) handlers.services?.onUpdate?.(service('web', []), service('web', []));
  assert.deepEqual(
    (await turn()).map((one) => [...one.wanted.keys()]),
    [['192.0.2.1']],
  );
  handlers.services?.onUpdate?.(service('web', []), service('web', []));
  assert.deepEqual(await turn(), []);
  handlers.nodes?.onUpdate?.(node('False'), node('True'));
  assert.deepEqual(
    (await turn()).map((one) => [...one.nodes]),
    [[]],
  );
  end();
  handlers.nodes?.onUpdate?.(node('True'), node('False'));
  assert.deepEqual(await turn(), []);
});

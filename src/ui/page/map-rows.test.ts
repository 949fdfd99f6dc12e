import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EdgeView, ServiceView } from '../view.ts';
import { edgeText } from './format.ts';
import { placeMap, pointAt } from './map-geometry.ts';
import { chooseRows, type MapQuestion, type MapRows } from './map-rows.ts';
import { addTick, NO_TRAFFIC } from './traffic.ts';

const service = (name: string, pods: readonly string[] = []): ServiceView => ({
  name,
  type: 'ClusterIP',
  addresses: ['10.96.0.1'],
  externalAddresses: [],
  ports: ['80/TCP'],
  httpPorts: [80],
  hasSelector: true,
  isOnNodes: false,
  endpoints: pods.map((pod, i) => ({
    addresses: [`10.244.0.${i + 2}`],
    pod,
    node: 'node-1',
    state: 'ready',
  })),
});
const edge = (
  client: string,
  name: string | null,
  endpoint: string | null,
  extra: Partial<EdgeView> = {},
): EdgeView => ({
  client,
  service: name,
  endpoint,
  verdict: 'delivered',
  count: 10,
  latencyMs: 1,
  reason: null,
  ...extra,
});

function question(
  services: readonly ServiceView[],
  edges: readonly EdgeView[],
  extra: Partial<MapQuestion> = {},
): MapQuestion {
  const counts = new Map<string, [number, number]>();
  for (const { service: name, count, verdict } of edges) {
    if (name === null) continue;
    const sum = counts.get(name) ?? [0, 0];
    counts.set(name, [sum[0] + count, sum[1] + (verdict === 'delivered' ? 0 : count)]);
  }
  return {
    services: new Map(services.map((one) => [one.name, one])),
    pods: new Map(),
    traffic: addTick(NO_TRAFFIC, {
      seconds: 1,
      edges,
      total: edges.length,
      omittedEdges: 0,
      services: Object.fromEntries(counts),
    }),
    namespace: null,
    service: null,
    search: '',
    limit: 40,
    ...extra,
  };
}

const labels = ({ clients, services, endpoints }: MapRows) =>
  [clients, services, endpoints].map((rows) => rows.map(({ label }) => label));

const WEB = service('shop/web', ['shop/web-1', 'shop/web-2']);
const API = service('shop/api', ['shop/api-1']);
const HELLO = service('default/hello', ['default/hello-1']);
const SMALL = [WEB, API, HELLO];
const TRAFFIC = [
  edge('default/client', 'shop/web', 'shop/web-1'),
  edge('outside', 'default/hello', 'default/hello-1'),
];

const rows: readonly {
  what: string;
  asked: MapQuestion;
  labels: readonly (readonly string[])[];
  links: number;
}[] = [
  {
    what: 'a small cluster: every Service and endpoint, and the clients with traffic',
    asked: question(SMALL, TRAFFIC),
    labels: [
      ['client', 'outside'],
      ['hello', 'api', 'web'],
      ['hello-1', 'api-1', 'web-1', 'web-2'],
    ],
    links: 4,
  },
  {
    what: 'one namespace',
    asked: question(SMALL, TRAFFIC, { namespace: 'shop' }),
    labels: [['client'], ['api', 'web'], ['api-1', 'web-1', 'web-2']],
    links: 2,
  },
  {
    what: 'one Service',
    asked: question(SMALL, TRAFFIC, { service: 'default/hello' }),
    labels: [['outside'], ['hello'], ['hello-1']],
    links: 2,
  },
  {
    what: 'a search for the pod of an endpoint',
    asked: question(SMALL, TRAFFIC, { search: 'API-1' }),
    labels: [[], ['api'], ['api-1']],
    links: 0,
  },
  {
    what: 'a search for a client',
    asked: question(SMALL, TRAFFIC, { search: 'default/client' }),
    labels: [['client'], ['web'], ['web-1', 'web-2']],
    links: 2,
  },
  {
    what: 'a search without a result',
    asked: question(SMALL, TRAFFIC, { search: 'nothing' }),
    labels: [[], [], []],
    links: 0,
  },
  {
    what: 'a connection between pods without a Service',
    asked: question([HELLO], [edge('default/a', null, 'default/hello-1')]),
    labels: [['a'], ['hello', 'without a Service'], ['hello-1']],
    links: 2,
  },
  {
    what: 'a refused connection ends at the Service',
    asked: question([HELLO], [edge('default/a', 'default/hello', null, { verdict: 'rejected' })]),
    labels: [['a'], ['hello'], ['hello-1']],
    links: 1,
  },
];
for (const { what, asked, labels: wanted, links } of rows) {
  test(what, () => {
    const chosen = chooseRows(asked);
    assert.deepEqual(labels(chosen), wanted);
    assert.equal(chosen.links.length, links);
    const { columns, links: curves } = placeMap(chosen, 900);
    const placed = columns.flatMap(({ rows }) => rows);
    assert.equal(placed.length, wanted.flat().length);
    assert.equal(curves.length, links, 'both ends of every link have a place');
  });
}

for (const width of [350, 734, 860, 1500])
  test(`at ${width} pixels links stay between the columns, so that none goes through a row`, () => {
    const geometry = placeMap(chooseRows(question(SMALL, TRAFFIC)), width);
    const gaps = geometry.columns.slice(1).map(({ x }, i) => {
      const before = geometry.columns[i];
      return [(before?.x ?? 0) + (before?.width ?? 0), x] as const;
    });
    assert.equal(geometry.links.length, 4);
    for (const { curve } of geometry.links)
      for (let t = 0; t <= 1; t += 0.05) {
        const [x] = pointAt(curve, t);
        assert.ok(
          gaps.some(([left, right]) => x >= left - 1e-6 && x <= right + 1e-6),
          `${x} in ${JSON.stringify(gaps)}`,
        );
      }
  });

test('clients by what they are: pods by namespace, those that are gone, nodes, and addresses outside', () => {
  const clients = ['shop/a', 'pod 10.244.1.9', 'node/node-1', '192.0.2.1'];
  const edges = clients.map((client) => edge(client, 'shop/web', 'shop/web-1'));
  const headings = chooseRows(question(SMALL, edges)).clients.map(({ heading, label }) => [label, heading]);
  assert.deepEqual(headings, [
    ['192.0.2.1', 'addresses outside'],
    ['node-1', 'nodes'],
    ['pod 10.244.1.9', 'pods that have ended'],
    ['a', 'namespace shop'],
  ]);
});

test('a connection in words has one arrow between two names', () => {
  const texts = [
    TRAFFIC[0],
    edge('default/a', null, '10.0.0.9'),
    edge('a/b', 'c/d', null),
    edge('a/b', null, null),
  ];
  assert.deepEqual(
    texts.map((one) => one && edgeText(one)),
    ['default/client → shop/web → web-1', 'default/a → 10.0.0.9', 'a/b → c/d', 'a/b'],
  );
});

const LARGE = Array.from({ length: 1000 }, (_, i) =>
  service(`team-${i % 20}/service-${i}`, [`team-${i % 20}/pod-${i}`]),
);
const BUSY = LARGE.flatMap(({ name }, i) => [
  edge(`team-${i % 20}/client-${i}`, name, `team-${i % 20}/pod-${i}`),
  edge(`team-${i % 20}/client-${i}`, name, null, { verdict: 'rejected', count: 1 }),
]);

test('a Service that nodes answer, one without endpoints, and an endpoint that is not a pod', () => {
  const machine: ServiceView = {
    ...service('default/kubernetes'),
    endpoints: [{ addresses: ['172.30.0.1'], pod: null, node: null, state: 'ready' }],
  };
  const dns: ServiceView = { ...service('kube-system/kube-dns'), isOnNodes: true };
  const { services, endpoints } = chooseRows(question([machine, dns, service('default/typo')], []));
  const texts = (rows: MapRows['services']) =>
    rows.map(({ label, detail, isUsable }) => [label, detail, isUsable]);
  assert.deepEqual(texts(services), [
    ['kubernetes', '1/1 ready', true],
    ['typo', 'no endpoints', false],
    ['kube-dns', 'on each node', true],
  ]);
  assert.deepEqual(texts(endpoints), [['172.30.0.1', '', true]]);
});

test('1,000 Services: grouped by namespace, clients by namespace, endpoints by node; few rows and links', () => {
  const chosen = chooseRows(question(LARGE, BUSY));
  assert.equal(chosen.services.length, 20);
  assert.deepEqual([chosen.services[0]?.label, chosen.services[0]?.detail], ['team-0', '50 Services']);
  assert.ok(chosen.clients.length <= 36 && chosen.endpoints.length <= 36);
  assert.ok(chosen.links.length <= 200);
  assert.ok(
    Math.abs((chosen.services[0]?.failed ?? 0) - 50) < 1e-6,
    'failures of the namespace are added up',
  );
});

test('a large namespace: the busiest Services, and how many are hidden', () => {
  const one = LARGE.map((each, i) => ({ ...each, name: `big/service-${i}` }));
  const chosen = chooseRows(
    question(one, [edge('default/a', 'big/service-999', null)], { namespace: 'big' }),
  );
  assert.equal(chosen.services.length, 40);
  assert.equal(chosen.hiddenServices, 960);
  assert.ok(chosen.services.some(({ label }) => label === 'service-999'));
});

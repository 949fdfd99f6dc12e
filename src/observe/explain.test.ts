import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { ADDRESS_ALLOCATED } from '../kube/load-balancer.ts';
import type { EndpointSlice, NetworkPolicy, Node, Pod, Service } from '../kube/types.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { compile } from '../service/compile.ts';
import type { ServiceMap } from '../service/model.ts';
import { testNode } from '../service/testing/test-node.ts';
import { explain } from './explain.ts';
import { renderExplanation, renderShort } from './explain-text.ts';
import type { ExplainView } from './explain-view.ts';
import {
  type EntryRequest,
  type Facts,
  knownFacts,
  type ListeningSocket,
  type NameLog,
  type NameTry,
} from './facts.ts';

type Ports = NonNullable<NonNullable<Service['spec']>['ports']>;

function service(
  name: string,
  clusterIP: string,
  spec: Partial<NonNullable<Service['spec']>> = {},
  ip?: string,
): Service {
  return {
    metadata: { namespace: 'shop', name },
    spec: {
      type: 'ClusterIP',
      clusterIP,
      clusterIPs: [clusterIP],
      selector: { app: name },
      ports: [{ name: 'http', port: 80, targetPort: 8080, protocol: 'TCP' }],
      ...spec,
    },
    status: { loadBalancer: ip ? { ingress: [{ ip }] } : {} },
  };
}

function pod(
  name: string,
  ip: string,
  node: string,
  change: { labels?: object; ready?: boolean; spec?: object; status?: object } = {},
): Pod {
  const { labels = { app: name.split('-')[0] }, ready = true, spec, status } = change;
  return {
    metadata: { namespace: 'shop', name, labels: labels as Record<string, string> },
    spec: {
      nodeName: node,
      containers: [{ name: 'main', image: 'host', ports: [{ name: 'web', containerPort: 8080 }], ...spec }],
    },
    status: {
      phase: 'Running',
      podIP: ip,
      podIPs: [{ ip }],
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
      containerStatuses: [
        { name: 'main', image: 'host', imageID: '', ready, restartCount: 0, state: { running: {} } },
      ],
      ...status,
    },
  };
}

function slice(
  owner: string,
  endpoints: readonly [ip: string, node: string, pod: string, ready?: boolean][],
): EndpointSlice {
  return {
    metadata: { namespace: 'shop', name: `${owner}-x`, labels: { 'kubernetes.io/service-name': owner } },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: endpoints.map(([ip, nodeName, name, ready = true]) => ({
      addresses: [ip],
      nodeName,
      conditions: { ready, serving: ready, terminating: false },
      targetRef: { kind: 'Pod', namespace: 'shop', name },
    })),
  };
}

const ports = (...list: Ports) => ({ ports: list });
const SERVICES: Service[] = [
  service(
    'web',
    '10.96.0.1',
    {
      type: 'LoadBalancer',
      ...ports(
        { name: 'http', port: 80, targetPort: 8080, nodePort: 30_080 },
        { name: 'tls', port: 443, targetPort: 8443 },
      ),
      loadBalancerSourceRanges: ['198.51.100.0/24'],
    },
    '203.0.113.1',
  ),
  service(
    'local',
    '10.96.0.2',
    {
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      selector: { app: 'web' },
      ...ports({ name: 'http', port: 80, targetPort: 8080, nodePort: 30_082 }),
    },
    '203.0.113.2',
  ),
  service('inside', '10.96.0.3', { internalTrafficPolicy: 'Local', selector: { app: 'far' } }),
  service('typo', '10.96.0.4', { selector: { app: 'webb', tier: 'x' } }),
  service('slow', '10.96.0.5'),
  service('named', '10.96.0.6', {
    selector: { app: 'web' },
    ...ports({ name: 'http', port: 80, targetPort: 'http' }),
  }),
  service('bare', '10.96.0.7', { selector: {} }),
  service('crash', '10.96.0.8'),
  service('pending', '10.96.0.10', { type: 'LoadBalancer' }),
  service('sticky', '10.96.0.11', { selector: { app: 'web' }, sessionAffinity: 'ClientIP' }),
];
const PODS: Pod[] = [
  pod('client-1', '10.244.1.9', 'node-1'),
  pod('web-1', '10.244.1.2', 'node-1', { labels: { app: 'web', tier: 'x' } }),
  pod('web-2', '10.244.2.2', 'node-2', { labels: { app: 'web', tier: 'y' } }),
  pod('far-1', '10.244.2.3', 'node-2'),
  pod('slow-1', '10.244.2.4', 'node-2', {
    ready: false,
    spec: { readinessProbe: { httpGet: { port: 8080, path: '/healthz' } } },
  }),
  pod('crash-1', '10.244.2.5', 'node-2', {
    ready: false,
    status: {
      containerStatuses: [
        {
          name: 'main',
          image: 'host',
          imageID: '',
          ready: false,
          restartCount: 3,
          state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 40s' } },
        },
      ],
    },
  }),
];
const WEB: [string, string, string][] = [
  ['10.244.1.2', 'node-1', 'web-1'],
  ['10.244.2.2', 'node-2', 'web-2'],
];
const SLICES: EndpointSlice[] = [
  slice('web', WEB),
  slice('local', [['10.244.2.2', 'node-2', 'web-2']]),
  slice('inside', [['10.244.2.3', 'node-2', 'far-1']]),
  slice('slow', [['10.244.2.4', 'node-2', 'slow-1', false]]),
  slice('sticky', WEB),
];
const NODES: Node[] = ['1', '2'].map((number) => ({
  metadata: { name: `node-${number}` },
  status: { addresses: [{ type: 'InternalIP', address: `192.168.0.${number}` }] },
}));

function view(change: Partial<ExplainView> = {}): ExplainView {
  const maps = new Map<string, ServiceMap>();
  for (const number of ['1', '2']) {
    const node = testNode({ name: `node-${number}`, ipv4: `192.168.0.${number}`, ipv6: null });
    maps.set(node.name, compile({ node, services: SERVICES, slices: SLICES }));
  }
  const names: Record<string, string[]> = { 'web.shop': ['10.96.0.1'], 'six.example': ['2001:db8::1'] };
  // As the agent of the other node answers.
  const entryOf = ({ node, source, destination, port, protocol }: Omit<EntryRequest, 'kind'>) =>
    explain(scene, { from: source, to: `${destination}:${port}/${protocol}`, family: null, entry: node });
  const scene: ExplainView = {
    services: () => SERVICES,
    slices: () => SLICES,
    pods: () => PODS,
    nodes: () => NODES,
    map: (node) => maps.get(node) ?? null,
    mode: () => 'nftables',
    locate: (_, frontend) => [{ object: `map svc ${frontend.address}`, effect: 'the map sends it on' }],
    facts: knownFactsOf(names, { entry: (packet) => entryOf(packet) }),
    hosts: [{ name: 'outside', addresses: ['198.51.100.7'] }],
    entryNode: (address) => (address.startsWith('203.0.113.') ? 'node-1' : null),
    ...change,
  };
  return scene;
}

const ask = (scene: ExplainView, from: string, to: string) => explain(scene, { from, to, family: null });

/** Pods' servers listen on their ports; every address has a route by its link, but the documentation's 192.0.2.0/24. */
function knownFactsOf(
  names: Readonly<Record<string, readonly string[]>>,
  change: Partial<Facts> = {},
): Facts {
  return {
    sockets: () => LISTENING,
    route: (place, destination) => {
      if (destination.startsWith('192.0.2.')) return null;
      const source = place.kind === 'node' ? `192.168.0.${place.node.slice(-1)}` : null;
      return {
        type: 'unicast',
        via: destination === '8.8.8.8' ? '192.168.0.254' : null,
        source,
        masqueradeSource: source,
      };
    },
    names: (_, name) => ({
      servers: ['10.96.0.9'],
      search: ['shop.svc.cluster.local'],
      ndots: 5,
      fromHosts: false,
      tries: [tryOf(name, names[name] ?? [])],
      addresses: names[name] ?? [],
    }),
    entry: () => undefined,
    missing: [],
    failures: [],
    ...change,
  };
}

const tryOf = (name: string, addresses: readonly string[]): NameTry => {
  const result = addresses.length > 0 ? 'NOERROR' : 'NXDOMAIN';
  return { name: `${name}.svc.cluster.local`, server: '10.96.0.9', result, aliases: [], addresses };
};
const LISTENING: readonly ListeningSocket[] = [8080, 53, 8085].map((port) => ({
  address: '::',
  port,
  v6Only: false,
}));

/** FROM, TO; the verdict and what the text must say, in this order. */
const rows: Record<string, readonly [from: string, to: string, verdict: string, ...says: RegExp[]]> = {
  'a pod to a Service': [
    'shop/client-1',
    'svc/shop/web:80',
    'delivered',
    /Service shop\/web is 10\.96\.0\.1/,
    /treated as traffic of a pod of this cluster/,
    /cluster IP 10\.96\.0\.1 port 80\/TCP belongs to Service shop\/web, port http/,
    /ipv4\/10\.96\.0\.1\/TCP\/80/,
    /the map sends it on/,
    /map svc 10\.96\.0\.1/,
    /2 endpoints of the whole cluster, each with probability 1\/2/,
    /source kept: the server sees 10\.244\.1\.9/,
    /10\.244\.1\.2:8080 +50\.0 % +shop\/web-1 +bridge of node-1/,
    /10\.244\.2\.2:8080 +50\.0 % +shop\/web-2 +route to node-2 \(192\.168\.0\.2\)/,
  ],
  'a pod by a prefix of its name, a port by its name': [
    'shop/client',
    'svc/shop/web:http',
    'delivered',
    /client-1/,
  ],
  'by DNS name': ['shop/client-1', 'web.shop:80', 'delivered', /web\.shop is 10\.96\.0\.1/, /DNS web\.shop/],
  'an endpoint to its own Service': [
    'shop/web-1',
    '10.96.0.1:80/tcp',
    'delivered',
    /rewritten to the node's if 10\.244\.1\.2 is chosen as the endpoint/,
    /10\.244\.1\.2:8080 .*hairpin/,
  ],
  'a node to a Service': [
    'node/node-2',
    'svc/shop/web:80',
    'delivered',
    /treated as the node's own traffic/,
    /source kept: the server sees 192\.168\.0\.2/,
  ],
  'outside to a load balancer address': [
    'outside',
    'svc/shop/web:80',
    'delivered',
    /203\.0\.113\.1/,
    /load balancer address/,
  ],
  'outside to a node port': [
    'outside',
    'node/node-2:30080',
    'delivered',
    /enters the Service rules of node-2/,
    /node port 192\.168\.0\.2/,
  ],
  'a pod to the node port of another node': [
    'shop/client-1',
    'node/node-2:30080',
    'delivered',
    /enters the Service rules of node-1/,
    /192\.168\.0\.2 is node node-2/,
    /enters the Service rules of node-2/,
    /node port 192\.168\.0\.2/,
    /source rewritten/,
  ],
  'a pod to a node port with policy Local, of a node with an endpoint': [
    'shop/client-1',
    'node/node-2:30082',
    'delivered',
    /enters the Service rules of node-2/,
  ],
  'a pod to a node port with policy Local, of a node without endpoints': [
    'shop/far-1',
    'node/node-1:30082',
    'dropped',
    /enters the Service rules of node-1/,
    /replies to the client directly, not through node-1/,
    /fix use the cluster IP/,
  ],
  'a node to a node port with policy Local, of a node without endpoints': [
    'node/node-2',
    'node/node-1:30082',
    'dropped',
    /none on this node/,
  ],
  'a pod to a port of another node that belongs to no Service': [
    'shop/client-1',
    'node/node-2:9999',
    'rejected',
    /enters the Service rules of node-2/,
    /9999/,
  ],
  'session affinity': ['shop/client-1', 'svc/shop/sticky', 'delivered', /keeps its endpoint until 10800 s/],
  'a pod is not subject to externalTrafficPolicy': [
    'shop/client-1',
    '203.0.113.2:80',
    'delivered',
    /1 endpoint of the whole cluster: externalTrafficPolicy applies only to clients outside the cluster/,
  ],
  'a pod to a pod': [
    'shop/client-1',
    'shop/far-1',
    'delivered',
    /10\.244\.2\.3 is pod shop\/far-1: route to node-2/,
  ],
  'a pod to the internet': [
    'shop/client-1',
    '8.8.8.8:53/udp',
    'unknown',
    /not the address of a pod or a node: the packet is routed/,
    /routed to 192\.168\.0\.254, which is not part of this cluster/,
  ],

  'a wrong port': [
    'shop/client-1',
    'svc/shop/web:81',
    'rejected',
    /no entry for 10\.96\.0\.1 port 81\/TCP/,
    /because port 81 not in spec\.ports: 80 \(http\), 443 \(tls\)/,
    /at {2}Service shop\/web spec\.ports/,
  ],
  'the pods’ port instead of the Service’s': [
    'shop/client-1',
    '10.96.0.1:8443',
    'rejected',
    /8443 is the pods' port/,
    /fix connect to port 443/,
  ],
  'the node port at the cluster IP': ['shop/client-1', '10.96.0.1:30080', 'rejected', /its node port/],
  'a wrong protocol': [
    'shop/client-1',
    '10.96.0.1:80/udp',
    'rejected',
    /port 80\/UDP not in spec\.ports/,
    /fix use TCP/,
  ],
  'a wrong port of a load balancer address': [
    'outside',
    '203.0.113.1:81',
    'dropped',
    /port 81 not in spec\.ports/,
  ],
  'the service port at a node': ['outside', '192.168.0.1:80', 'rejected', /has node port 30080 for it/],
  'no Service has the address': [
    'shop/client-1',
    '10.96.9.9:80',
    'dropped',
    /not assigned to a Service/,
    /use the name/,
  ],
  'a selector that matches nothing': [
    'shop/client-1',
    'svc/shop/typo',
    'rejected',
    /selector app=webb,tier=x matches 0 pods in namespace shop; closest: app=web on pod shop\/web-1/,
    /Service shop\/typo spec\.selector/,
    /set spec\.selector\.app to web/,
  ],
  'pods that are not ready': [
    'shop/client-1',
    'svc/shop/slow',
    'rejected',
    /Pod shop\/slow-1 is not ready: readiness probe of container main \(httpGet :8080\/healthz\)/,
    /spec\.containers\[0\]\.readinessProbe/,
  ],
  'pods that crash': [
    'shop/client-1',
    'svc/shop/crash',
    'rejected',
    /container main is CrashLoopBackOff: back-off 40s/,
  ],
  'a port name that the pods do not have': [
    'shop/client-1',
    'svc/shop/named',
    'rejected',
    /targetPort http is not a TCP port name in pod shop\/web-1: web \(8080\)/,
    /spec\.ports\[0\]\.targetPort/,
  ],
  'a Service without selector': [
    'shop/client-1',
    'svc/shop/bare',
    'rejected',
    /no selector and no EndpointSlice/,
  ],
  'no local endpoint for a client outside the cluster': [
    '198.51.100.7',
    '203.0.113.2:80',
    'dropped',
    /externalTrafficPolicy: Local, but there is no endpoint on node-1; endpoints are on node-2/,
    /spec\.externalTrafficPolicy/,
  ],
  'no local endpoint at the cluster IP': [
    'shop/client-1',
    'svc/shop/inside',
    'dropped',
    /internalTrafficPolicy: Local, but there is no endpoint on node-1/,
    /set it to Cluster/,
  ],
  'outside the source ranges': [
    '192.0.2.9',
    '203.0.113.1:80',
    'dropped',
    /192\.0\.2\.9 is not in the source ranges 198\.51\.100\.0\/24/,
    /loadBalancerSourceRanges/,
    /add 192\.0\.2\.9\/32/,
  ],
  'a name that does not exist': [
    'shop/client-1',
    'web.default:80',
    'unresolved',
    /web\.default\.svc\.cluster\.local: NXDOMAIN/,
    /there is no Service default\/web; Service shop\/web exists/,
    /use web\.shop/,
  ],
  'a name of the other family': ['shop/client-1', 'six.example:80', 'unresolved', /only 2001:db8::1/],
  'a ClusterIP Service from outside': [
    'outside',
    'svc/shop/slow',
    'unresolved',
    /not reachable from outside/,
    /spec\.type/,
  ],
  'a load balancer address that is pending': [
    'outside',
    'svc/shop/pending',
    'unresolved',
    /no load balancer address yet/,
  ],
};

for (const [name, [from, to, verdict, ...says]] of Object.entries(rows)) {
  test(name, () => {
    const explanation = ask(view(), from, to);
    const text = renderExplanation(explanation);
    assert.equal(explanation.verdict, verdict, text);
    let at = 0;
    for (const pattern of says) {
      const found = pattern.exec(text.slice(at));
      assert.ok(found, `${pattern} is missing, or out of order, in\n${text}`);
      at += found.index;
    }
    assert.deepEqual(JSON.parse(JSON.stringify(explanation)), explanation, 'it is plain data');
    assert.ok(['delivered', 'unknown'].includes(verdict) || explanation.causes.length > 0);
  });
}

const refused: Record<string, readonly [from: string, to: string, code: string, hint: RegExp]> = {
  'a pod that does not exist': ['shop/cleint-1', 'web.shop', 'not-found', /did you mean shop\/client-1/],
  'a Service that does not exist': ['outside', 'svc/shop/wbe', 'not-found', /did you mean shop\/web/],
  'a node that does not exist': ['node/mars', 'web.shop', 'not-found', /node-1, node-2/],
  'a Service as FROM': ['svc/shop/web', 'web.shop', 'bad-argument', /use a pod/],
  'a Service with several ports and none named': [
    'outside',
    'svc/shop/web',
    'bad-argument',
    /80 \(http\), 443 \(tls\)/,
  ],
  'a port name that the Service does not have': [
    'outside',
    'svc/shop/web:dns',
    'bad-argument',
    /80 \(http\)/,
  ],
  'an address without a port': ['shop/client-1', '8.8.8.8', 'bad-argument', /:PORT/],
};
for (const [name, [from, to, code, hint]] of Object.entries(refused)) {
  test(`refused: ${name}`, () => assert.throws(() => ask(view(), from, to), { code, hint }));
}

const perMode: readonly [what: string, mode: Mode, from: string, says: RegExp][] = [
  [
    'the proxy connects to the server itself',
    'userspace',
    'shop/client-1',
    /the server sees 192\.168\.0\.1: its connection comes from the proxy on node-1/,
  ],
  [
    'a pod sees itself behind its own Service',
    'ebpf',
    'shop/web-1',
    /source kept: 10\.244\.1\.2 sees itself as the client/,
  ],
];
for (const [what, mode, from, says] of perMode) {
  test(`in ${mode} mode ${what}`, () => {
    const explanation = ask(view({ mode: () => mode }), from, '10.96.0.1:80');
    assert.match(explanation.steps.map(({ text }) => text).join('\n'), says);
  });
}

describe('network policies', () => {
  const rules = (from: object) => [{ from: [{ podSelector: from }], ports: [{ port: 8080 }] }];
  const admits = (from: object): NetworkPolicy => ({
    metadata: { namespace: 'shop', name: 'web-only' },
    spec: { podSelector: { matchLabels: { app: 'web' } }, policyTypes: ['Ingress'], ingress: rules(from) },
  });
  const silent: NetworkPolicy = {
    metadata: { namespace: 'shop', name: 'silent' },
    spec: { podSelector: {}, policyTypes: ['Egress'] },
  };
  const policyRows: [what: string, policies: NetworkPolicy[], verdict: string, ...says: RegExp[]][] = [
    [
      'the rule that allows it is named',
      [admits({})],
      'delivered',
      /NetworkPolicy shop\/web-only allows ingress to shop\/web-1 on port 8080\/TCP/,
      /spec\.ingress\[0\]\.from\[0\]/,
    ],
    [
      'the policy that denies it is named, with the rule that would allow it',
      [admits({ matchLabels: { app: 'other' } })],
      'dropped',
      /no rule of NetworkPolicy shop\/web-only allows ingress to shop\/web-1/,
      /denied by network policies/,
      /fix add a rule to one of them: from namespaceSelector \{kubernetes\.io\/metadata\.name: shop\}, podSelector/,
    ],
    [
      'denied egress, with allowed ingress',
      [admits({}), silent],
      'dropped',
      /no rule of NetworkPolicy shop\/silent allows egress from shop\/client-1/,
      /isolates pod shop\/client-1 for egress/,
    ],
  ];
  for (const [what, policies, verdict, ...says] of policyRows) {
    test(what, () => {
      const table = createPolicyTable('node-1');
      for (const one of PODS) table.setPod(one);
      for (const one of policies) table.setPolicy(one);
      const explanation = ask(view({ policies: () => table }), 'shop/client-1', 'svc/shop/web:80');
      assert.equal(explanation.verdict, verdict);
      let text = renderExplanation(explanation);
      for (const pattern of says) {
        assert.match(text, pattern);
        text = text.slice(text.search(pattern));
      }
    });
  }
});

test('a node with an unknown table is reported', () => {
  const explanation = ask(view({ map: () => null }), 'shop/client-1', '10.96.0.1:80');
  assert.equal(explanation.verdict, 'unknown');
  assert.match(explanation.reason, /table of node-1 is not known/);
});

test('packets to an unannounced address do not enter the cluster, with the reason', () => {
  const local = service(
    'web',
    '10.96.0.1',
    { type: 'LoadBalancer', externalTrafficPolicy: 'Local' },
    '203.0.113.2',
  );
  const announced = {
    ...local,
    status: {
      ...local.status,
      conditions: [
        { type: ADDRESS_ALLOCATED, status: 'True', reason: 'Allocated', message: '', lastTransitionTime: '' },
      ],
    },
  };
  const scene = view({ entryNode: () => null, services: () => [announced] });
  const explanation = ask(scene, 'outside', '203.0.113.2:80');
  assert.equal(explanation.verdict, 'dropped');
  assert.equal(explanation.packet?.node, null);
  assert.match(
    explanation.causes[0]?.text ?? '',
    /only nodes with a ready endpoint of Service shop\/web may do so/,
  );
  // An address of another load balancer, which no host on the link has.
  const foreign = ask(view({ entryNode: () => null }), 'outside', '203.0.113.2:80');
  assert.equal(foreign.verdict, 'dropped');
  assert.match(foreign.causes[0]?.fix ?? '', /check the load balancer that allocated the address/);
});

test('traffic from outside enters through the node that announces the address', () => {
  const announced = view({ entryNode: () => 'node-2' });
  const explanation = ask(announced, 'outside', '203.0.113.2:80');
  assert.equal(explanation.packet?.node, 'node-2');
  assert.equal(explanation.verdict, 'delivered');
  assert.match(
    explanation.steps.map(({ object, text }) => `${object}: ${text}`).join('\n'),
    /Lease kube-system\/load-balancer-203\.0\.113\.2: node-2 announces 203\.0\.113\.2 by ARP/,
  );
});

describe('listening sockets at the destination', () => {
  const socket = (address: string, port: number, v6Only = false): ListeningSocket => ({
    address,
    port,
    v6Only,
  });
  const listenRows: [
    what: string,
    sockets: ListeningSocket[] | undefined,
    verdict: string,
    ...says: RegExp[],
  ][] = [
    ['on every address', [socket('0.0.0.0', 8080)], 'delivered'],
    ['on every address of both families', [socket('::', 8080)], 'delivered'],
    [
      'on IPv6 alone',
      [socket('::', 8080, true)],
      'rejected',
      /listens on \[::\]:8080 only, not on 10\.244\./,
      /fix let it listen on 0\.0\.0\.0/,
    ],
    ['on loopback', [socket('127.0.0.1', 8080)], 'rejected', /listens on 127\.0\.0\.1:8080 only/],
    [
      'on another port',
      [socket('::', 3000)],
      'rejected',
      /nothing listens on port 8080\/TCP in pod shop\/web-1; it listens on 3000/,
      /at {2}Service shop\/web spec\.ports\[0\]\.targetPort/,
      /fix set spec\.ports\[0\]\.targetPort to 3000/,
    ],
    ['nowhere', [], 'rejected', /nothing listens on port 8080\/TCP in pod shop\/web-1/],
    [
      'where it cannot be checked',
      undefined,
      'unknown',
      /the listening sockets of pod shop\/web-1 are not known/,
    ],
  ];
  for (const [what, sockets, verdict, ...says] of listenRows) {
    test(what, () => {
      const facts = knownFactsOf({}, { sockets: () => sockets });
      const explanation = ask(view({ facts }), 'shop/client-1', 'svc/web:80');
      assert.equal(explanation.verdict, verdict);
      for (const pattern of says) assert.match(renderExplanation(explanation), pattern);
    });
  }

  test('some endpoints accept: partly delivered, unless a proxy tries the next one', () => {
    const facts = knownFactsOf(
      {},
      { sockets: (place) => (place.kind === 'pod' && place.name === 'shop/web-2' ? [] : LISTENING) },
    );
    const one = ask(view({ facts }), 'shop/client-1', 'svc/web:80');
    assert.equal(one.verdict, 'partial');
    assert.deepEqual(
      one.endpoints.map(({ arrival }) => arrival),
      ['answered', 'refused'],
    );
    assert.equal(
      ask(view({ facts, mode: () => 'userspace' }), 'shop/client-1', 'svc/web:80').verdict,
      'delivered',
    );
  });
});

describe('names that do not resolve', () => {
  const log = (change: Partial<NameLog>): NameLog => ({
    servers: ['10.96.0.10'],
    search: ['shop.svc.cluster.local'],
    ndots: 5,
    fromHosts: false,
    tries: [],
    addresses: [],
    ...change,
  });
  const tried = (result: string, change: Partial<NameTry> = {}): NameTry[] => [
    {
      name: 'web.shop.svc.cluster.local',
      server: '10.96.0.10',
      result,
      aliases: [],
      addresses: [],
      ...change,
    },
  ];
  const dns = service('kube-dns', '10.96.0.10');
  const services = [...SERVICES, { ...dns, metadata: { namespace: 'kube-system', name: 'kube-dns' } }];
  const nameRows: [what: string, name: string, log: NameLog, ...says: RegExp[]][] = [
    [
      'asked of other name servers',
      'web',
      log({ servers: ['192.0.2.53'], tries: tried('NXDOMAIN', { server: '192.0.2.53' }) }),
      /resolved by 192\.0\.2\.53, not by the cluster's DNS: NXDOMAIN \(dnsPolicy/,
      /set dnsPolicy: ClusterFirst/,
    ],
    ['no name server', 'web', log({ servers: [] }), /resolved by no name server/],
    [
      'an alias that leads nowhere',
      'away',
      log({ tries: tried('SERVFAIL', { aliases: ['www.example.com'] }) }),
      /alias of www\.example\.com, which does not resolve: SERVFAIL from 10\.96\.0\.10/,
    ],
    [
      'a name server that does not answer',
      'web',
      log({ tries: tried('no answer') }),
      /no name server answers: 10\.96\.0\.10 \(no answer\)/,
    ],
    ['a typing error', 'wbe', log({ tries: tried('NXDOMAIN') }), /did you mean web\?/],
    ['the name of a pod', 'far-1', log({ tries: tried('NXDOMAIN') }), /far-1 is a pod/, /pod\/shop\/far-1/],
    ['no address of the family', 'web', log({ tries: tried('NOERROR') }), /spec\.ipFamilies/],
  ];
  for (const [what, name, answer, ...says] of nameRows) {
    test(what, () => {
      const facts = knownFactsOf({}, { names: () => answer });
      const explanation = ask(view({ facts, services: () => services }), 'shop/client-1', `${name}:80`);
      assert.equal(explanation.verdict, 'unresolved');
      for (const pattern of says) assert.match(renderExplanation(explanation), pattern);
    });
  }
});

test('missing facts are named, and the verdict is unknown', () => {
  const facts = knownFacts([]);
  const explanation = ask(view({ facts }), 'shop/client-1', 'web.shop:80');
  assert.equal(explanation.verdict, 'unknown');
  assert.deepEqual(
    explanation.missing.map(({ kind }) => kind),
    ['names'],
  );
});

test('the short form has the verdict, the endpoints, the reason and the fix in eight lines', () => {
  const many = Array.from({ length: 9 }, (_, i): [string, string, string] => [
    `10.244.1.${i + 50}`,
    'node-1',
    `web-${i}`,
  ]);
  const map = compile({
    node: testNode({ name: 'node-1', ipv4: '192.168.0.1', ipv6: null }),
    services: SERVICES,
    slices: [slice('web', many)],
  });
  const facts = knownFactsOf({}, { sockets: () => [] });
  const text = renderShort(ask(view({ facts, map: () => map }), 'shop/client-1', 'svc/web:80'));
  const lines = text.trimEnd().split('\n');
  assert.ok(lines.length <= 8, text);
  for (const line of lines) assert.ok(line.length <= 80, line);
  assert.match(text, /^.*pod shop\/client-1 → svc\/web:80 \(10\.96\.0\.1:80\/TCP\)\n/);
  assert.match(text, /10\.244\.1\.50:8080 +11 % /);
  assert.match(text, /and 7 more/);
});

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Mode } from '../dataplane/dataplane.ts';
import { ADDRESS_ALLOCATED } from '../kube/load-balancer.ts';
import { compile } from '../service/compile.ts';
import { testNode } from '../service/testing/test-node.ts';
import { renderExplanation, renderShort } from './explain-text.ts';
import type { ExplainView } from './explain-view.ts';
import { indexFacts, knownFacts } from './facts.ts';
import { ask, knownFactsOf, SERVICES, service, slice, view } from './testing/explain-scene.ts';

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
  'by DNS name': [
    'shop/client-1',
    'web.shop:80',
    'delivered',
    /web\.shop is 10\.96\.0\.1/,
    /DNS query for web\.shop/,
  ],
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
    'unreachable',
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

const real = (): ExplainView =>
  view({ hosts: [], entryNode: (address) => (address === '203.0.113.1' ? 'node-1' : null) });

/** On a cluster without a known host outside; the agents of real clusters have none. */
const fromAnyClient: Record<string, readonly [from: string, to: string, verdict: string, ...says: RegExp[]]> =
  {
    'a node port': [
      'outside',
      'node/node-1:30080',
      'delivered',
      /outside is any client: 192\.0\.2\.1 or 2001:db8::1 stands for it/,
      /192\.0\.2\.1 \(outside\) enters the Service rules of node-1; treated as traffic from outside/,
    ],
    'a Service by its announced address': [
      'outside@198.51.100.9',
      'svc/shop/web:80',
      'delivered',
      /198\.51\.100\.9 \(outside@198\.51\.100\.9\) enters the Service rules of node-1/,
    ],
    'a Service with source ranges': [
      'outside',
      'svc/shop/web:80',
      'dropped',
      /192\.0\.2\.1 is not in the source ranges 198\.51\.100\.0\/24/,
      /write outside@ADDRESS/,
    ],
    'an address of a load balancer that is not Fairlead’s, with externalTrafficPolicy Local': [
      'outside',
      '203.0.113.2:80',
      'delivered',
      /only to nodes with a ready endpoint, such as node-2 \(externalTrafficPolicy: Local\)/,
      /enters the Service rules of node-2/,
      /the server sees 192\.0\.2\.1/,
    ],
    'a Service by a node port, with externalTrafficPolicy Local': [
      'outside',
      'svc/shop/near',
      'delivered',
      /by node port of node-2, which has a ready endpoint \(externalTrafficPolicy: Local\)/,
    ],
    'an external IP': [
      'outside',
      '198.18.0.7:80',
      'delivered',
      /no node is known to announce 198\.18\.0\.7: a client reaches it only if its network has a route/,
    ],
    'a pod by its address': [
      'outside',
      '10.244.2.2:8080',
      'delivered',
      /10\.244\.2\.2 is the address of pod shop\/web-2 on node-2: .* a route to 10\.244\.2\.2 through node-2, which is not checked/,
    ],
    'a DNS name': ['outside', 'web.shop:80', 'unresolved', /the resolver of outside is not known/],
    'outside with the address of a pod is that pod': [
      'outside@10.244.1.9',
      'svc/shop/web:80',
      'delivered',
      /treated as traffic of a pod of this cluster/,
    ],
  };
for (const [name, [from, to, verdict, ...says]] of Object.entries(fromAnyClient)) {
  test(`any client outside to ${name}`, () => {
    const explanation = ask(real(), from, to);
    const text = renderExplanation(explanation);
    assert.equal(explanation.verdict, verdict, text);
    for (const pattern of says) assert.match(text, pattern);
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

test('the step of the question that was answered has the question', () => {
  const [step] = ask(view(), 'shop/client-1', 'web.shop:80').steps;
  assert.equal(step?.subject, 'name');
  assert.equal(step.ruleOrKey, `DNS query for ${step.question?.name} to ${step.question?.server}`);
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
  assert.equal(explanation.verdict, 'unreachable');
  assert.equal(explanation.packet?.node, null);
  assert.match(
    explanation.causes[0]?.text ?? '',
    /only nodes with a ready endpoint of Service shop\/web may do so/,
  );
  // An address of another load balancer, which no host on the link has.
  const foreign = ask(view({ entryNode: () => null }), 'outside', '203.0.113.2:80');
  assert.equal(foreign.verdict, 'unreachable');
  assert.match(foreign.causes[0]?.fix ?? '', /check the load balancer that allocated the address/);
});

test('where the hosts beside the nodes are not known, an address on the link may answer', () => {
  const from = (hosts: ExplainView['hosts']) => ask(view({ hosts }), 'shop/client-1', '198.51.100.9:80');
  assert.equal(from([{ name: 'outside', addresses: ['198.51.100.7'] }]).verdict, 'unreachable');
  const unknown = from([]);
  assert.equal(unknown.verdict, 'unknown');
  const said = unknown.steps.map(({ text }) => text).join('\n');
  assert.match(said, /198\.51\.100\.9 is on the link of node-1, and is not part of this cluster/);
});

test('traffic from outside enters through the node that announces the address', () => {
  const announced = view({ entryNode: () => 'node-2' });
  const explanation = ask(announced, 'outside', '203.0.113.2:80');
  assert.equal(explanation.packet?.node, 'node-2');
  assert.equal(explanation.verdict, 'delivered');
  assert.match(
    explanation.steps.map(({ object, text }) => `${object}: ${text}`).join('\n'),
    /Lease fairlead-leases\/load-balancer-203\.0\.113\.2: node-2 announces 203\.0\.113\.2 by ARP/,
  );
});

test('missing facts are named, and the verdict is unknown', () => {
  const facts = knownFacts(indexFacts([]));
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

describe('the short form', () => {
  const ROUTE = { type: 'unicast', via: null, source: null, masqueradeSource: null };
  const facts = knownFactsOf({}, { route: ({ kind }) => (kind === 'node' ? null : ROUTE) });
  const explanation = ask(view({ facts }), 'shop/client-1', '192.0.2.7:443');
  const widest = (text: string) => Math.max(...text.split('\n').map(({ length }) => length));
  test('is as wide as the terminal, which wraps it once', () => {
    for (const columns of [60, 80, 200])
      assert.ok(widest(renderShort(explanation, columns)) <= columns, `${columns}`);
  });
  test('is neither wrapped nor shortened in a pipe', () => {
    const text = renderShort(explanation, null);
    assert.doesNotMatch(text, /…/);
    assert.match(text, /^ {2}fix: .*up --egress.*$/m);
  });
  test('has the whole fix at 200 columns', () => {
    assert.doesNotMatch(renderShort(explanation, 200), /…/);
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goldenServices } from '../dataplane/testing/golden-services.ts';
import { endpoint, frontend, NODE, serviceMap } from '../dataplane/testing/service-map.ts';
import type { Frontend, NodeView } from '../service/model.ts';
import { renderKubeProxyRules } from './kube-proxy-rules.ts';

/** A Service of kube-proxy's own tests, whose chains they name. */
const owner = { namespace: 'ns1', name: 'svc1', portName: 'p80', protocol: 'TCP' } as const;
const SVC = 'KUBE-SVC-XPGD46QRK7WJZT7O';
const SEP = 'KUBE-SEP-SXIVWICOYRO3J4NJ';
const upstream = (change: Partial<Parameters<typeof frontend>[0]>): Frontend => {
  const base = { kind: 'ClusterIP', service: 'svc1', address: '172.30.0.41', port: 80 } as const;
  return { ...frontend({ ...base, endpoints: [endpoint('10.180.0.1', 80)], ...change }), owner };
};

/** Returns the Service's own rules, or those that it shares. */
function linesOf(frontends: readonly Frontend[], node: Partial<NodeView> = {}, isShared = false): string[] {
  const map = serviceMap(frontends, { ...NODE, ...node });
  return renderKubeProxyRules({ map, node: map.node, frontends, listenerOf: () => null })
    .filter((section) => section.isShared === isShared)
    .flatMap(({ command, lines }) =>
      lines.map((line) => `${command.slice('iptables-save -t '.length)} ${line}`),
    );
}

test('a cluster IP: the rules of the Service, and a chain for its endpoint', () => {
  const comment = '-m comment --comment';
  assert.deepEqual(linesOf([upstream({})]), [
    `nat -A KUBE-SERVICES -d 172.30.0.41/32 -p tcp ${comment} "ns1/svc1:p80 cluster IP" -m tcp --dport 80 -j ${SVC}`,
    `nat -A ${SVC} ! -s 10.244.0.0/16 -d 172.30.0.41/32 -p tcp ${comment} "ns1/svc1:p80 cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`,
    `nat -A ${SVC} ${comment} "ns1/svc1:p80 -> 10.180.0.1:80" -j ${SEP}`,
    `nat -A ${SEP} -s 10.180.0.1/32 ${comment} "ns1/svc1:p80" -j KUBE-MARK-MASQ`,
    `nat -A ${SEP} -p tcp ${comment} "ns1/svc1:p80" -m tcp -j DNAT --to-destination 10.180.0.1:80`,
  ]);
});

const local = [endpoint('10.180.0.2', 80), endpoint('10.180.0.10', 80, false)];
const remote = [endpoint('10.180.0.1', 80, false)];
const nodePort = { kind: 'NodePort', address: null, port: 3001 } as const;
const HAS: readonly {
  what: string;
  frontends: readonly Frontend[];
  node?: Partial<NodeView>;
  has: readonly RegExp[];
  lacks?: readonly RegExp[];
}[] = [
  {
    what: 'no endpoints: a rejection, and no chain',
    frontends: [upstream({ endpoints: [] }), upstream({ ...nodePort, endpoints: [] })],
    has: [
      /^filter -A KUBE-SERVICES -d 172\.30\.0\.41\/32 .*has no endpoints.* -j REJECT --reject-with icmp-port-unreachable$/,
      /^filter -A KUBE-EXTERNAL-SERVICES -p tcp .* -m addrtype --dst-type LOCAL -m tcp --dport 3001 -j REJECT/,
    ],
    lacks: [/^nat /],
  },
  {
    what: 'a node port: its traffic is masqueraded',
    frontends: [upstream({}), upstream(nodePort)],
    has: [
      /^nat -A KUBE-NODEPORTS -p tcp .*"ns1\/svc1:p80" -m tcp --dport 3001 -j KUBE-EXT-XPGD46QRK7WJZT7O$/,
      /^nat -A KUBE-EXT-XPGD46QRK7WJZT7O .*masquerade traffic for .* -j KUBE-MARK-MASQ$/,
      /^nat -A KUBE-EXT-XPGD46QRK7WJZT7O -j KUBE-SVC-XPGD46QRK7WJZT7O$/,
    ],
    lacks: [/KUBE-SVL-|^filter/],
  },
  {
    what: 'externalTrafficPolicy Local: its own endpoints for others, all for pods and the node',
    frontends: [
      upstream({ endpoints: local, policy: 'external-local', ...nodePort }),
      upstream({ endpoints: local }),
    ],
    has: [
      /^nat -A KUBE-EXT-\S+ -s 10\.244\.0\.0\/16 .*pod traffic for .* -j KUBE-SVC-/,
      /^nat -A KUBE-EXT-\S+ .*route LOCAL traffic .* --src-type LOCAL -j KUBE-SVC-/,
      /^nat -A KUBE-EXT-\S+ -j KUBE-SVL-/,
      /^nat -A KUBE-SVL-\S+ .*"ns1\/svc1:p80 -> 10\.180\.0\.2:80" -j KUBE-SEP-/,
      // In the order of their texts, as kube-proxy sorts them.
      /^nat -A KUBE-SVC-\S+ .*-> 10\.180\.0\.10:80" -m statistic --mode random --probability 0\.50000000000 -j/,
    ],
    lacks: [/KUBE-SVL-\S+ .*10\.180\.0\.10/],
  },
  {
    what: 'externalTrafficPolicy Local without endpoints here: outside is dropped, pods are not',
    frontends: [
      upstream({ endpoints: remote, policy: 'external-local', ...nodePort }),
      upstream({ endpoints: remote }),
    ],
    has: [
      /^filter -A KUBE-EXTERNAL-SERVICES .*has no local endpoints" -m addrtype .* -j DROP$/,
      /^nat -A KUBE-EXT-\S+ -s 10\.244\.0\.0\/16 .* -j KUBE-SVC-/,
    ],
    lacks: [/-j KUBE-SVL-/],
  },
  {
    what: 'internalTrafficPolicy Local without endpoints here: dropped',
    frontends: [upstream({ endpoints: remote, policy: 'internal-local' })],
    has: [/^filter -A KUBE-SERVICES -d 172\.30\.0\.41\/32 .*has no local endpoints" .* -j DROP$/],
    lacks: [/^nat -A KUBE-SERVICES/],
  },
  {
    what: 'internalTrafficPolicy Local: the chain of local endpoints',
    frontends: [upstream({ endpoints: local, policy: 'internal-local' })],
    has: [/^nat -A KUBE-SERVICES .* -j KUBE-SVL-/, /^nat -A KUBE-SVL-\S+ ! -s .* -j KUBE-MARK-MASQ$/],
    lacks: [/KUBE-SVC-/],
  },
  {
    what: 'source ranges: a chain that accepts them, and a rule that drops the rest',
    frontends: [
      upstream({
        kind: 'LoadBalancer',
        address: '5.6.7.8',
        allowedSources: ['192.0.2.0/24', '203.0.113.0/25'],
      }),
    ],
    has: [
      /^nat -A KUBE-SERVICES -d 5\.6\.7\.8\/32 .*loadbalancer IP" .* -j KUBE-FW-/,
      /^nat -A KUBE-FW-\S+ -s 203\.0\.113\.0\/25 .* -j KUBE-EXT-/,
      // The node is in the first range: its own packets to the address come from the address.
      /^nat -A KUBE-FW-\S+ -s 5\.6\.7\.8\/32 .* -j KUBE-EXT-/,
      /^nat -A KUBE-FW-\S+ -m comment --comment "other traffic to ns1\/svc1:p80 will be dropped by KUBE-PROXY-FIREWALL"$/,
      /^filter -A KUBE-PROXY-FIREWALL -d 5\.6\.7\.8\/32 .*traffic not accepted by KUBE-FW-XPGD46QRK7WJZT7O" .* -j DROP$/,
    ],
  },
  {
    what: 'affinity: the endpoint of a known client first, and each remembers its clients',
    frontends: [upstream({ affinitySeconds: 10800 })],
    has: [
      /^nat -A KUBE-SVC-\S+ .* -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-SXIVWICOYRO3J4NJ .* -j KUBE-SEP-/,
      /^nat -A KUBE-SEP-\S+ -p tcp .* -m recent --set --name KUBE-SEP-SXIVWICOYRO3J4NJ .* -m tcp -j DNAT/,
    ],
  },
  {
    what: 'an external IP',
    frontends: [upstream({ kind: 'ExternalIP', address: '192.0.2.77' })],
    has: [/^nat -A KUBE-SERVICES -d 192\.0\.2\.77\/32 .*external IP" .* -j KUBE-EXT-/],
  },
  {
    what: 'masqueradeAll: every packet to the cluster IP is marked',
    frontends: [upstream({})],
    node: { masqueradeAll: true },
    has: [/^nat -A KUBE-SVC-\S+ -d 172\.30\.0\.41\/32 .* -j KUBE-MARK-MASQ$/],
    lacks: [/! -s/],
  },
  {
    what: 'pods recognized by their devices',
    frontends: [upstream({})],
    node: { localDetection: { mode: 'InterfaceNamePrefix', prefix: 'veth' } },
    has: [/^nat -A KUBE-SVC-\S+ -d 172\.30\.0\.41\/32 ! -i veth\+ .* -j KUBE-MARK-MASQ$/],
  },
];
for (const { what, frontends, node, has, lacks = [] } of HAS)
  test(what, () => {
    const lines = linesOf(frontends, node);
    const text = lines.join('\n');
    for (const one of has)
      assert.ok(
        lines.some((line) => one.test(line)),
        `${one} in\n${text}`,
      );
    for (const one of lacks) assert.ok(!lines.some((line) => one.test(line)), `${one} in\n${text}`);
  });

test('an endpoint that failover has ejected is in the rules of kube-proxy, which does not know that', () => {
  const one = upstream({});
  const { pod } = one.routes;
  assert.equal(pod.action, 'forward');
  const pool = pod.action === 'forward' ? { ...pod.pool, ejected: [endpoint('10.180.0.7', 80)] } : undefined;
  const route = { ...pod, pool } as typeof pod;
  const lines = linesOf([{ ...one, routes: { pod: route, node: route, external: route } }]);
  assert.ok(lines.some((line) => line.endsWith('DNAT --to-destination 10.180.0.7:80')));
});

const SHARED: readonly [what: string, node: Partial<NodeView>, rule: RegExp][] = [
  [
    'all local addresses',
    {},
    /^nat -A KUBE-SERVICES -m comment .* -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS$/,
  ],
  [
    'all but loopback',
    { localhostNodePorts: false },
    /^nat -A KUBE-SERVICES ! -d 127\.0\.0\.0\/8 -m comment/,
  ],
  [
    'one address',
    { nodePortAddresses: { ipv4: { all: false, cidrs: [] }, ipv6: { all: true } } },
    /^nat -A KUBE-SERVICES -d 192\.0\.2\.10\/32 -m comment .* -j KUBE-NODEPORTS$/,
  ],
];
for (const [what, node, rule] of SHARED)
  test(`node ports on ${what}: the last rule of KUBE-SERVICES`, () => {
    const [first = ''] = linesOf([upstream({})], node, true);
    assert.match(first, rule);
  });

test('kube-proxy needs a chain for each endpoint, this mode one for all of a port', () => {
  const map = goldenServices();
  const frontends = [...map.frontends.values()].filter(({ owner: { name } }) => name === 'plain');
  const lines = renderKubeProxyRules({ map, node: map.node, frontends, listenerOf: () => null })
    .filter(({ isShared }) => !isShared)
    .flatMap((section) => section.lines);
  const chains = new Set(lines.map((line) => line.split(' ')[1] ?? ''));
  assert.equal([...chains].filter((name) => name.startsWith('KUBE-SEP-')).length, 3);
  assert.equal(lines.length, 11);
});

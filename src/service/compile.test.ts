import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compile } from './compile.ts';
import type { NodeView, ServiceMap, SourceClass } from './model.ts';
import type { EndpointSliceObject, ServiceObject } from './objects.ts';
import { webService, webSlice } from './testing/objects.ts';
import { network, testNode } from './testing/test-node.ts';

interface Row {
  readonly services?: readonly ServiceObject[];
  readonly slices?: readonly EndpointSliceObject[];
  readonly node?: Partial<NodeView>;
  readonly ejected?: readonly string[];
  /** The keys of the frontends, in order. */
  readonly keys?: readonly string[];
  /** "key class" → endpoints as "ip:port", or "reject" or "drop". */
  readonly routes?: Readonly<Record<string, string>>;
}

const TWO = [webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2'])];
const WEB = 'ipv4/10.96.0.1/TCP/80';
const BOTH = '10.244.1.2:8080 10.244.2.2:8080';
const external = (
  spec: object = {},
  ingress: readonly { ip?: string; ipMode?: string; hostname?: string }[] = [],
) =>
  webService(
    { type: 'LoadBalancer', ports: [{ name: 'http', port: 80, nodePort: 30_080 }], ...spec },
    {},
    ingress,
  );

const rows: Record<string, Row> = {
  // Objects that are used or ignored
  'a cluster IP': { keys: [WEB], routes: { [`${WEB} pod`]: BOTH } },
  'a Service labelled for another proxy is ignored, whatever the label’s value': {
    services: [webService({}, { labels: { 'service.kubernetes.io/service-proxy-name': '' } })],
    keys: [],
  },
  'a Service labelled headless is ignored': {
    services: [webService({}, { labels: { 'service.kubernetes.io/headless': '' } })],
    keys: [],
  },
  'a headless Service has no frontends': {
    services: [webService({ clusterIP: 'None', clusterIPs: ['None'] })],
    keys: [],
  },
  'a Service without an address yet has no frontends': {
    services: [webService({ clusterIP: '', clusterIPs: [] })],
    keys: [],
  },
  'an ExternalName Service has no frontends, even with a cluster IP': {
    services: [webService({ type: 'ExternalName', externalName: 'example.com' })],
    keys: [],
  },
  'clusterIP is used if clusterIPs is missing': {
    services: [webService({ clusterIPs: undefined })],
    keys: [WEB],
  },
  'a family without cluster IP has no frontends, including node ports and load balancer addresses': {
    services: [external({}, [{ ip: '203.0.113.1' }, { ip: '2001:db8::1' }])],
    keys: [WEB, 'ipv4/203.0.113.1/TCP/80', 'ipv4/nodeport/TCP/30080'],
  },
  'dual stack': {
    services: [external({ clusterIPs: ['10.96.0.1', 'fd00:96::1'] }, [{ ip: '2001:db8::1' }])],
    slices: [...TWO, webSlice(['fd00:244:0:1::2 @node-1'], { name: 'web-6' })],
    keys: [
      WEB,
      'ipv4/nodeport/TCP/30080',
      'ipv6/fd00:96::1/TCP/80',
      'ipv6/2001:db8::1/TCP/80',
      'ipv6/nodeport/TCP/30080',
    ],
    routes: { [`${WEB} pod`]: BOTH, 'ipv6/2001:db8::1/TCP/80 external': 'fd00:244:0:1::2:8080' },
  },
  'service ports match slice ports by name and protocol': {
    services: [
      webService({
        ports: [
          { name: 'dns', protocol: 'UDP', port: 53 },
          { name: 'dns-tcp', protocol: 'TCP', port: 53 },
          { name: 'sig', protocol: 'SCTP', port: 3868 },
        ],
      }),
    ],
    slices: [
      webSlice(['10.244.1.2'], {
        ports: [
          { name: 'dns', protocol: 'UDP', port: 1053 },
          { name: 'dns-tcp', protocol: 'TCP', port: 2053 },
          { name: 'sig', protocol: 'TCP', port: 3868 },
        ],
      }),
    ],
    routes: {
      'ipv4/10.96.0.1/UDP/53 pod': '10.244.1.2:1053',
      'ipv4/10.96.0.1/TCP/53 pod': '10.244.1.2:2053',
      'ipv4/10.96.0.1/SCTP/3868 pod': 'reject',
    },
  },
  'an unnamed port matches the slice port whose name is empty or missing': {
    services: [webService({ ports: [{ port: 80 }] })],
    slices: [webSlice(['10.244.1.2'], { ports: [{ name: null, port: 8080 }] })],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'endpoints may have different ports for one service port': {
    slices: [
      webSlice(['10.244.1.2']),
      webSlice(['10.244.1.3'], { name: 'web-2', ports: [{ name: 'http', port: 9090 }] }),
    ],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080 10.244.1.3:9090' },
  },
  'slices without the Service label, of type FQDN, or labelled for another proxy are ignored': {
    slices: [
      webSlice(['10.244.1.2'], { metadata: { namespace: 'default', name: 'a' } }),
      webSlice(['example.com'], { name: 'b', addressType: 'FQDN' }),
      webSlice(['10.244.1.2'], {
        metadata: {
          namespace: 'default',
          name: 'c',
          labels: { 'kubernetes.io/service-name': 'web', 'service.kubernetes.io/headless': '' },
        },
      }),
      webSlice(['10.244.1.2'], {
        metadata: { namespace: 'other', name: 'd', labels: { 'kubernetes.io/service-name': 'web' } },
      }),
    ],
    routes: { [`${WEB} pod`]: 'reject' },
  },
  'only the first address of an endpoint is used': {
    slices: [webSlice([], { endpoints: [{ addresses: ['10.244.1.2', '10.244.1.3'] }] })],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'conditions that are not set mean ready': {
    slices: [webSlice(['10.244.1.2 unset'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'an endpoint in two slices counts once': {
    slices: [webSlice(['10.244.1.2']), webSlice(['10.244.1.2'], { name: 'web-2' })],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'a running pod beats a terminating one with its address, in either order': {
    slices: [
      webSlice(['10.244.1.2 terminating', '10.244.1.3']),
      webSlice(['10.244.1.2', '10.244.1.3 dead'], { name: 'web-2' }),
    ],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080 10.244.1.3:8080' },
  },
  'addresses with leading zeros and white space are read as decimal': {
    services: [webService({ clusterIPs: [' 010.096.000.001 '] })],
    slices: [webSlice(['010.244.001.002'])],
    keys: [WEB],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'endpoints are ordered by value, not as text': {
    slices: [webSlice(['10.244.1.10', '10.244.1.9', '10.244.0.200'])],
    routes: { [`${WEB} pod`]: '10.244.0.200:8080 10.244.1.9:8080 10.244.1.10:8080' },
  },

  // Endpoint selection
  'endpoints that are not ready get no traffic': {
    slices: [webSlice(['10.244.1.2', '10.244.1.3 not-ready', '10.244.1.4 dead'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'endpoints that terminate but still serve are used if none is ready': {
    slices: [webSlice(['10.244.1.2 terminating', '10.244.2.2 terminating', '10.244.2.3 dead'])],
    routes: { [`${WEB} pod`]: BOTH },
  },
  'terminating endpoints get no traffic while others are ready': {
    slices: [webSlice(['10.244.1.2 terminating', '10.244.2.2'])],
    routes: { [`${WEB} pod`]: '10.244.2.2:8080' },
  },
  'endpoints of a Service that publishes not-ready addresses serve until they end': {
    slices: [webSlice(['10.244.1.2 dying-ready', '10.244.2.2 terminating'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'policy Local: ready endpoints of this node, otherwise terminating ones, for each set separately': {
    services: [external({ externalTrafficPolicy: 'Local' }, [{ ip: '203.0.113.1' }])],
    slices: [webSlice(['10.244.1.2 terminating @node-1', '10.244.2.2 @node-2'])],
    routes: {
      'ipv4/203.0.113.1/TCP/80 external': '10.244.1.2:8080',
      'ipv4/203.0.113.1/TCP/80 pod': '10.244.2.2:8080',
      'ipv4/nodeport/TCP/30080 external': '10.244.1.2:8080',
      [`${WEB} external`]: '10.244.2.2:8080',
    },
  },
  'external policy Local without local endpoints drops traffic only from outside the cluster': {
    services: [external({ externalTrafficPolicy: 'Local' }, [{ ip: '203.0.113.1' }])],
    slices: [webSlice(['10.244.2.2 @node-2'])],
    routes: {
      'ipv4/203.0.113.1/TCP/80 external': 'drop',
      'ipv4/nodeport/TCP/30080 external': 'drop',
      'ipv4/203.0.113.1/TCP/80 node': '10.244.2.2:8080',
      'ipv4/203.0.113.1/TCP/80 pod': '10.244.2.2:8080',
    },
  },
  'external policy Local applies to external IPs of a ClusterIP Service': {
    services: [webService({ externalIPs: ['203.0.113.9'], externalTrafficPolicy: 'Local' })],
    slices: [webSlice(['10.244.2.2 @node-2'])],
    routes: { 'ipv4/203.0.113.9/TCP/80 external': 'drop', [`${WEB} external`]: '10.244.2.2:8080' },
  },
  'internal policy Local without local endpoints drops at the cluster IP only': {
    services: [external({ internalTrafficPolicy: 'Local' })],
    slices: [webSlice(['10.244.2.2 @node-2'])],
    routes: { [`${WEB} pod`]: 'drop', 'ipv4/nodeport/TCP/30080 external': '10.244.2.2:8080' },
  },
  'without any endpoint, connections are rejected, with policy Local too': {
    services: [
      external({ externalTrafficPolicy: 'Local', internalTrafficPolicy: 'Local' }, [{ ip: '203.0.113.1' }]),
    ],
    slices: [webSlice(['10.244.1.2 not-ready @node-1'])],
    routes: {
      [`${WEB} pod`]: 'reject',
      'ipv4/203.0.113.1/TCP/80 external': 'reject',
      'ipv4/nodeport/TCP/30080 node': 'reject',
    },
  },

  // Topology
  'node hints keep traffic on the node': {
    slices: [webSlice(['10.244.1.2 node=node-1 zone=zone-a', '10.244.2.2 node=node-2 zone=zone-a'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'zone hints are used if node hints name only other nodes': {
    slices: [webSlice(['10.244.1.2 node=node-3 zone=zone-a', '10.244.2.2 node=node-2 zone=zone-b'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'zone hints keep traffic in the zone': {
    slices: [webSlice(['10.244.1.2 zone=zone-a', '10.244.2.2 zone=zone-b,zone-c'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'one ready endpoint without a hint turns hints off': {
    slices: [webSlice(['10.244.1.2 zone=zone-a', '10.244.2.2'])],
    routes: { [`${WEB} pod`]: BOTH },
  },
  'hints of endpoints that are not ready are ignored': {
    slices: [webSlice(['10.244.1.2 zone=zone-a', '10.244.2.2 zone=zone-b', '10.244.2.3 not-ready'])],
    routes: { [`${WEB} pod`]: '10.244.1.2:8080' },
  },
  'hints without this node’s zone are ignored': {
    slices: [webSlice(['10.244.1.2 zone=zone-b', '10.244.2.2 zone=zone-b'])],
    routes: { [`${WEB} pod`]: BOTH },
  },
  'a node without a zone ignores zone hints': {
    node: { zone: null },
    slices: [webSlice(['10.244.1.2 zone=zone-a', '10.244.2.2 zone=zone-b'])],
    routes: { [`${WEB} pod`]: BOTH },
  },
  'topology hints do not restrict policy Local': {
    services: [external({ externalTrafficPolicy: 'Local' })],
    slices: [webSlice(['10.244.1.2 @node-1 zone=zone-b', '10.244.2.2 @node-2 zone=zone-a'])],
    routes: { 'ipv4/nodeport/TCP/30080 external': '10.244.1.2:8080' },
  },
  'the fallback to terminating endpoints ignores topology': {
    slices: [webSlice(['10.244.1.2 terminating zone=zone-b', '10.244.2.2 terminating zone=zone-a'])],
    routes: { [`${WEB} pod`]: BOTH },
  },

  // Load balancers, external IPs, node ports
  'load balancer addresses with ipMode VIP or none have frontends; Proxy and host names do not': {
    services: [
      external({}, [
        { ip: '203.0.113.1' },
        { ip: '203.0.113.2', ipMode: 'VIP' },
        { ip: '203.0.113.3', ipMode: 'Proxy' },
        { hostname: 'lb.example.com' },
      ]),
    ],
    keys: [WEB, 'ipv4/203.0.113.1/TCP/80', 'ipv4/203.0.113.2/TCP/80', 'ipv4/nodeport/TCP/30080'],
  },
  'no node port frontend if none was allocated': {
    services: [external({ ports: [{ name: 'http', port: 80, nodePort: 0 }] }, [{ ip: '203.0.113.1' }])],
    keys: [WEB, 'ipv4/203.0.113.1/TCP/80'],
  },
  'one Service has the same node port for TCP and UDP': {
    services: [
      external({
        ports: [
          { name: 'a', port: 53, protocol: 'UDP', nodePort: 30_053 },
          { name: 'b', port: 53, protocol: 'TCP', nodePort: 30_053 },
        ],
      }),
    ],
    keys: [
      'ipv4/10.96.0.1/UDP/53',
      'ipv4/nodeport/UDP/30053',
      'ipv4/10.96.0.1/TCP/53',
      'ipv4/nodeport/TCP/30053',
    ],
  },
  'an address that is both load balancer address and external IP of a Service is treated as the former': {
    services: [external({ externalIPs: ['203.0.113.1'] }, [{ ip: '203.0.113.1' }])],
    keys: [WEB, 'ipv4/203.0.113.1/TCP/80', 'ipv4/nodeport/TCP/30080'],
  },
  'addresses that the node answers itself have no frontend': {
    node: { ownServiceAddresses: ['10.96.0.1'] },
    services: [external()],
    keys: ['ipv4/nodeport/TCP/30080'],
  },

  // Ejection
  'a failed endpoint is ejected': {
    ejected: ['10.244.1.2:8080/TCP'],
    routes: { [`${WEB} pod`]: '10.244.2.2:8080' },
  },
  'a failed endpoint of another port or protocol stays': {
    ejected: ['10.244.1.2:8080/UDP', '10.244.1.2:80/TCP'],
    routes: { [`${WEB} pod`]: BOTH },
  },
  'at most half of the endpoints are ejected, those listed first': {
    slices: [webSlice(['10.244.1.1', '10.244.1.2', '10.244.1.3', '10.244.1.4', '10.244.1.5'])],
    ejected: [4, 5, 1, 2].map((host) => `10.244.1.${host}:8080/TCP`),
    routes: { [`${WEB} pod`]: '10.244.1.1:8080 10.244.1.2:8080 10.244.1.3:8080' },
  },
  'the last endpoint of a set is never ejected, including local sets': {
    services: [external({ externalTrafficPolicy: 'Local' })],
    ejected: ['10.244.1.2:8080/TCP'],
    routes: {
      'ipv4/nodeport/TCP/30080 external': '10.244.1.2:8080',
      'ipv4/nodeport/TCP/30080 pod': '10.244.2.2:8080',
    },
  },
  'a Service that opts out of failover keeps its endpoints': {
    services: [webService({}, { annotations: { 'fairlead.dev/failover': 'disabled' } })],
    ejected: ['10.244.1.2:8080/TCP'],
    routes: { [`${WEB} pod`]: BOTH },
  },
};

for (const [name, row] of Object.entries(rows)) {
  test(name, () => {
    const map = compileRow(row);
    if (row.keys) assert.deepEqual([...map.frontends.keys()], row.keys);
    for (const [at, expected] of Object.entries(row.routes ?? {}))
      assert.equal(routeText(map, at), expected, at);
  });
}

test('affinity: none, with the default time, with a configured time', () => {
  const seconds = (spec: object) => firstFrontend({ services: [webService(spec)] })?.affinitySeconds;
  assert.equal(seconds({}), null);
  assert.equal(seconds({ sessionAffinity: 'ClientIP' }), 10_800);
  const config = { clientIP: { timeoutSeconds: 60 } };
  assert.equal(seconds({ sessionAffinity: 'ClientIP', sessionAffinityConfig: config }), 60);
});

test('annotations choose scheduler, balance and failover', () => {
  const annotations = {
    'fairlead.dev/ipvs-scheduler': 'mh',
    'fairlead.dev/balance': 'maglev',
    'fairlead.dev/failover': 'disabled',
  };
  assert.deepEqual(firstFrontend({ services: [webService({}, { annotations })] })?.options, {
    ipvsScheduler: 'mh',
    balance: 'maglev',
    failover: false,
  });
  assert.deepEqual(firstFrontend({})?.options, { ipvsScheduler: null, balance: 'random', failover: true });
});

const ranges: Record<
  string,
  [loadBalancerSourceRanges: string[], node: Partial<NodeView>, v4: string[] | null]
> = {
  'without ranges all clients are allowed': [[], {}, null],
  'ranges of the family': [
    ['10.0.0.0/8', '198.51.100.0/24', '2001:db8::/32'],
    {},
    ['10.0.0.0/8', '198.51.100.0/24'],
  ],
  'ranges with white space, leading zeros and host bits': [[' 010.1.2.3/8 '], {}, ['10.0.0.0/8']],
  'a node inside a range may also use the address itself as source': [
    ['192.168.0.0/16'],
    {},
    ['192.168.0.0/16', '203.0.113.1/32'],
  ],
  'a node without an address of the family gets no exception': [['0.0.0.0/0'], { ipv4: null }, ['0.0.0.0/0']],
  'ranges of the other family only: this family is open': [['2001:db8::/32'], {}, null],
  'invalid ranges admit no client': [['10.0.0.0/33'], {}, []],
};
for (const [name, [loadBalancerSourceRanges, node, expected]] of Object.entries(ranges)) {
  test(`source ranges: ${name}`, () => {
    const map = compileRow({
      node,
      services: [external({ loadBalancerSourceRanges }, [{ ip: '203.0.113.1' }])],
    });
    const at = (key: string) => map.frontends.get(key)?.allowedSources?.map(({ text }) => text) ?? null;
    assert.deepEqual(at('ipv4/203.0.113.1/TCP/80'), expected);
    assert.equal(at(WEB), null, 'cluster IPs have no ranges');
    assert.equal(at('ipv4/nodeport/TCP/30080'), null, 'node ports have no ranges');
  });
}

test('health checks count distinct ready local addresses, a dual-stack pod once', () => {
  const spec = {
    externalTrafficPolicy: 'Local',
    healthCheckNodePort: 31_000,
    clusterIPs: ['10.96.0.1', 'fd00:96::1'],
    ports: [
      { name: 'http', port: 80 },
      { name: 'https', port: 443 },
    ],
  };
  const ports = [
    { name: 'http', port: 8080 },
    { name: 'https', port: 8443 },
  ];
  const slices = [
    webSlice(['10.244.1.2 @node-1', '10.244.1.3 @node-1 terminating', '10.244.2.2 @node-2'], { ports }),
    webSlice(['10.244.1.2 @node-1'], { name: 'web-2', ports }),
    webSlice(['fd00:244:0:1::2 @node-1'], { name: 'web-6', ports }),
  ];
  const check = (change: object) =>
    compileRow({ services: [external({ ...spec, ...change })], slices }).healthChecks;
  assert.deepEqual(check({}).get('default/web'), {
    namespace: 'default',
    name: 'web',
    port: 31_000,
    localEndpoints: 1,
  });
  assert.equal(check({ externalTrafficPolicy: 'Cluster' }).size, 0);
  assert.equal(check({ type: 'NodePort' }).size, 0);
  assert.equal(check({ healthCheckNodePort: 0 }).size, 0);
});

test('cluster IPs and hairpin addresses are listed for the guard rails and the masquerade', () => {
  const map = compileRow({
    services: [webService({ clusterIPs: ['10.96.0.1', 'fd00:96::1'] })],
    slices: [webSlice(['10.244.1.2 @node-1', '10.244.2.2 @node-2', '10.244.9.9'])],
  });
  assert.deepEqual(
    [...map.clusterIPs],
    [
      ['10.96.0.1', 'default/web'],
      ['fd00:96::1', 'default/web'],
    ],
  );
  assert.deepEqual([...map.hairpinAddresses], ['10.244.1.2', '10.244.9.9']);
});

test('without local detection a pod is treated as a client outside the cluster; detection by interface needs a name', () => {
  const masquerade = (localDetection: NodeView['localDetection']) => {
    const route = firstFrontend({ node: { localDetection } })?.routes.external;
    return route?.action === 'forward' && route.masquerade;
  };
  assert.equal(masquerade({ mode: 'ClusterCIDR', ipv4: network('10.244.0.0/16'), ipv6: null }), true);
  assert.equal(masquerade({ mode: 'NodeCIDR', ipv4: null, ipv6: network('fd00::/64') }), false);
  assert.equal(masquerade({ mode: 'BridgeInterface', interface: 'fl0' }), true);
  assert.equal(masquerade({ mode: 'InterfaceNamePrefix', prefix: '' }), false);
});

test('frontends of one service port share their pool', () => {
  const map = compileRow({ services: [external({}, [{ ip: '203.0.113.1' }])] });
  const pools = [...map.frontends.values()].flatMap(({ routes }) =>
    routes.pod.action === 'forward' ? [routes.pod.pool] : [],
  );
  assert.equal(pools.length, 3);
  assert.equal(new Set(pools).size, 1);
  assert.equal(pools[0]?.id, 'default/web:http/TCP/ipv4/cluster');
});

function compileRow({ services = [webService()], slices = TWO, node = {}, ejected = [] }: Row): ServiceMap {
  return compile({ node: testNode(node), services, slices, ejected: new Set(ejected) });
}

function firstFrontend(row: Row) {
  return compileRow(row).frontends.get(WEB);
}

function routeText(map: ServiceMap, at: string): string {
  const [key = '', source = ''] = at.split(' ');
  const route = map.frontends.get(key)?.routes[source as SourceClass];
  if (!route) return 'no frontend';
  if (route.action !== 'forward') return route.action;
  return route.pool.endpoints.map(({ ip, port }) => `${ip}:${port}`).join(' ');
}

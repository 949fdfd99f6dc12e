import { FAMILY_NAMES } from '../../lib/address.ts';
import type { LocalDetection, NodeView, Protocol } from '../model.ts';
import type { EndpointSliceObject, ServiceObject, SliceEndpoint } from '../objects.ts';
import type { Random } from './random.ts';
import { network, testNode } from './test-node.ts';

const NODES = ['node-1', 'node-2', 'node-3'];
const ZONES = ['zone-a', 'zone-b'];

export function randomService(
  random: Random,
  identity: { namespace: string; name: string },
  born: number,
  protocols: readonly Protocol[],
  dual: boolean,
): ServiceObject {
  const type = random.pick(['ClusterIP', 'ClusterIP', 'NodePort', 'LoadBalancer', 'LoadBalancer']);
  const host = random.integer(40) + 1;
  const clusterIPs = [`10.96.0.${host}`];
  if (dual && random.chance(0.7)) clusterIPs.push(`fd00:96::${host.toString(16)}`);
  if (dual && random.chance(0.2)) clusterIPs.reverse();
  const outside = () => {
    const v4 = `203.0.113.${random.integer(8) + 1}`;
    return dual && random.chance(0.4) ? `2001:db8::${random.integer(8) + 1}` : v4;
  };
  const names = random.chance(0.3) ? [''] : ['http', 'dns', 'metrics'].slice(0, 1 + random.integer(3));
  const labels = random.chance(0.05)
    ? { [random.pick(['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'])]: 'x' }
    : {};
  const annotations: Record<string, string> = {};
  if (random.chance(0.1))
    annotations['fairlead.dev/failover'] = random.pick(['disabled', 'enabled', 'maybe']);
  if (random.chance(0.1)) annotations['fairlead.dev/balance'] = random.pick(['maglev', 'least-connections']);
  if (random.chance(0.1)) annotations['fairlead.dev/ipvs-scheduler'] = random.pick(['sh', 'lc', 'nope']);
  const headless = random.chance(0.05);
  return {
    metadata: {
      ...identity,
      labels,
      annotations,
      creationTimestamp: new Date(1_700_000_000_000 + Math.floor(born / 3) * 1000).toISOString(),
    },
    spec: {
      type: random.chance(0.03) ? 'ExternalName' : type,
      clusterIP: headless ? 'None' : (clusterIPs[0] ?? ''),
      clusterIPs: headless ? ['None'] : clusterIPs,
      externalIPs: random.chance(0.2) ? [outside()] : [],
      ports: names.map((name, i) => ({
        name,
        protocol: random.pick(protocols),
        port: 80 + i,
        ...(type === 'ClusterIP' || random.chance(0.1) ? {} : { nodePort: 30_000 + random.integer(60) }),
      })),
      sessionAffinity: random.chance(0.2) ? 'ClientIP' : 'None',
      ...(random.chance(0.5) ? { sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } } } : {}),
      externalTrafficPolicy: random.pick(['Cluster', 'Local']),
      internalTrafficPolicy: random.pick(['Cluster', 'Cluster', 'Local']),
      loadBalancerSourceRanges: random.chance(0.3)
        ? random.pick([
            ['198.51.100.0/24'],
            [' 192.168.000.0/16 '],
            ['10.0.0.0/8', '2001:db8:1::/48'],
            ['::/0'],
          ])
        : [],
      healthCheckNodePort: random.chance(0.5) ? 31_000 + random.integer(100) : 0,
    },
    status: {
      loadBalancer:
        type === 'LoadBalancer'
          ? {
              ingress: [
                { ip: outside(), ...(random.chance(0.2) ? { ipMode: random.pick(['VIP', 'Proxy']) } : {}) },
                ...(random.chance(0.2) ? [{ hostname: 'lb.example.com' }] : []),
              ],
            }
          : {},
    },
  };
}

export function randomSlice(
  random: Random,
  namespace: string,
  service: string,
  family: 'ipv4' | 'ipv6',
  protocols: readonly Protocol[],
  object: ServiceObject | undefined,
): EndpointSliceObject {
  const declared = Array.isArray(object?.spec?.ports) ? object.spec.ports : [];
  // One of the invalid Services may list any value.
  const sound = declared.filter(
    (port) => typeof port?.name === 'string' && typeof port.protocol === 'string',
  );
  const ports = sound.length > 0 ? sound : [{ name: 'http', protocol: random.pick(protocols) }];
  const target = 8080 + random.integer(3);
  const hinted = random.pick(['none', 'none', 'zones', 'nodes', 'some']);
  return {
    metadata: {
      namespace,
      name: `${service}-${random.integer(3)}-${family}`,
      labels: { 'kubernetes.io/service-name': service },
    },
    addressType: FAMILY_NAMES[family],
    ports: ports.map(({ name = '', protocol = 'TCP' }, i) => ({ name, protocol, port: target + i })),
    endpoints: Array.from({ length: random.integer(6) }, () => randomEndpoint(random, family, hinted)),
  };
}

export function randomEndpoint(random: Random, family: 'ipv4' | 'ipv6', hinted: string): SliceEndpoint {
  const node = random.integer(NODES.length);
  const host = random.integer(12) + 2;
  const address =
    family === 'ipv4' ? `10.244.${node + 1}.${host}` : `fd00:244:0:${node + 1}::${host.toString(16)}`;
  const hint = hinted === 'some' ? random.pick(['none', 'zones', 'nodes']) : hinted;
  const condition = random.pick([
    'ready',
    'ready',
    'ready',
    'unset',
    'not-ready',
    'terminating',
    'dying',
    'dead',
  ]);
  const conditions = {
    ready: { ready: true, serving: true, terminating: false },
    unset: random.pick([{}, { ready: null }]),
    'not-ready': { ready: false, serving: false, terminating: false },
    terminating: { ready: false, serving: true, terminating: true },
    dying: { ready: true, serving: true, terminating: true },
    dead: { ready: false, serving: false, terminating: true },
  }[condition];
  return {
    addresses: [address],
    ...(conditions ? { conditions } : {}),
    nodeName: random.chance(0.05) ? null : (NODES[node] ?? null),
    ...(random.chance(0.8)
      ? { targetRef: { kind: 'Pod', namespace: 'default', name: `pod-${node}-${host}` } }
      : {}),
    hints: {
      ...(hint === 'zones' ? { forZones: [{ name: random.pick(ZONES) }] } : {}),
      ...(hint === 'nodes' ? { forNodes: [{ name: random.pick(NODES) }] } : {}),
    },
  };
}

export function randomNode(random: Random): NodeView {
  const detections: readonly LocalDetection[] = [
    { mode: 'ClusterCIDR', ipv4: network('10.244.0.0/16'), ipv6: network('fd00:244::/48') },
    { mode: 'ClusterCIDR', ipv4: network('10.244.0.0/16'), ipv6: null },
    { mode: 'NodeCIDR', ipv4: null, ipv6: network('fd00:244:0:1::/64') },
    { mode: 'BridgeInterface', interface: 'fl0' },
    { mode: 'InterfaceNamePrefix', prefix: 'flp' },
  ];
  return testNode({
    zone: random.pick([...ZONES, null]),
    localDetection: random.pick(detections),
    masqueradeAll: random.chance(0.2),
    localhostNodePorts: random.chance(0.7),
    ownServiceAddresses: random.chance(0.3) ? ['10.96.0.10'] : [],
    nodePortAddresses: random.chance(0.5)
      ? { ipv4: { all: true }, ipv6: { all: true } }
      : { ipv4: { all: false, cidrs: [network('192.168.0.0/24')] }, ipv6: { all: false, cidrs: [] } },
  });
}

import type { EndpointSliceObject, ServiceObject } from '../objects.ts';
import type { Random } from './random.ts';

/** Values that are invalid in any field. */
export const JUNK: readonly unknown[] = [
  null,
  undefined,
  '',
  'x',
  '999.1.1.1',
  '10.96.0.1/33',
  0,
  -1,
  70_000,
  1.5,
  Number.NaN,
  true,
  [],
  {},
  [null],
  [[]],
  { name: 7 },
  'a'.repeat(300),
  '0.0.0.0',
  '127.0.0.1',
  '::ffff:10.244.1.2',
  ' 010.244.001.003 ',
];

/** Returns a Service in which some fields, at any depth, are replaced by junk. Its name stays valid. */
export function nastyService(random: Random, namespace: string): ServiceObject {
  const host = random.integer(40) + 1;
  const sound = {
    spec: {
      type: 'LoadBalancer',
      clusterIP: `10.96.0.${host}`,
      clusterIPs: [`10.96.0.${host}`, `fd00:96::${host}`],
      externalIPs: ['203.0.113.1', '2001:db8::1'],
      ports: [
        { name: 'http', protocol: 'TCP', port: 80, nodePort: 30_001 },
        { name: 'http', protocol: 'TCP', port: 80, nodePort: 30_001 },
        { name: 'dns', protocol: 'UDP', port: 53, nodePort: 30_002 },
      ],
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 10 } },
      externalTrafficPolicy: 'Local',
      internalTrafficPolicy: 'Cluster',
      loadBalancerSourceRanges: ['10.0.0.0/8', '2001:db8::/32'],
      healthCheckNodePort: 31_000,
    },
    status: { loadBalancer: { ingress: [{ ip: '203.0.113.2', ipMode: 'VIP' }, { ip: '2001:db8::2' }] } },
  };
  const metadata = {
    namespace,
    name: `svc-${random.integer(30)}`,
    creationTimestamp: random.pick(['2024-01-01T00:00:00Z', 'yesterday', 7]),
    annotations: { 'fairlead.dev/balance': random.pick(['maglev', 'best', 3]) },
  };
  return { ...(spoil(random, sound) as object), metadata } as ServiceObject;
}

/**
 * Returns an EndpointSlice in which some fields, at any depth, are replaced by junk. Its name and Service
 * stay valid.
 */
export function nastySlice(random: Random, namespace: string): EndpointSliceObject {
  const service = `svc-${random.integer(30)}`;
  const sound = {
    addressType: random.pick(['IPv4', 'IPv4', 'IPv6', 'FQDN']),
    ports: [
      { name: 'http', protocol: 'TCP', port: 8080 },
      { name: 'dns', protocol: 'UDP', port: 5353 },
    ],
    endpoints: Array.from({ length: 4 }, (_, i) => ({
      addresses: [`10.244.1.${i + 2}`],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: 'node-1',
      targetRef: { kind: 'Pod', namespace, name: `pod-1-${i + 2}` },
      hints: { forZones: [{ name: 'zone-a' }] },
    })),
  };
  const metadata = {
    namespace,
    name: `${service}-${random.integer(3)}-ipv4`,
    labels: { 'kubernetes.io/service-name': service },
  };
  return { ...(spoil(random, sound) as object), metadata } as EndpointSliceObject;
}

function spoil(random: Random, value: unknown): unknown {
  if (random.chance(0.06)) return random.pick(JUNK);
  if (Array.isArray(value)) return value.map((item) => spoil(random, item));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, spoil(random, item)]));
}

import type { LabelSelector, NetworkPolicy } from '../../kube/types.ts';
import type { RowClusterPolicy } from '../policy-row.ts';
import { ALL, policy, withLabels } from './policy-objects.ts';

type Spec = NonNullable<NetworkPolicy['spec']>;
type Ingress = NonNullable<Spec['ingress']>[number];
type Peer = NonNullable<Ingress['from']>[number];
type Port = NonNullable<Ingress['ports']>[number];

const PACKETS = 24;
const NAMESPACES = ['x', 'y', 'z'];
const PODS: readonly LabelSelector[] = [
  ALL,
  withLabels('app=a'),
  withLabels('app=b'),
  withLabels('tier=web'),
  { matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] },
];
const TEAMS: readonly LabelSelector[] = [
  ALL,
  withLabels('team=blue'),
  { matchExpressions: [{ key: 'team', operator: 'NotIn', values: ['blue'] }] },
];
/** Blocks come in pairs, so that both families have the same result. */
const BLOCKS: readonly Peer[][] = [
  [{ ipBlock: { cidr: '10.244.1.0/24' } }, { ipBlock: { cidr: 'fd00:10:244:1::/64' } }],
  [
    { ipBlock: { cidr: '0.0.0.0/0', except: ['10.244.2.0/24', '172.30.9.2/32'] } },
    { ipBlock: { cidr: '::/0', except: ['fd00:10:244:2::/64', 'fd00:172:30:9::2/128'] } },
  ],
  [{ ipBlock: { cidr: '172.30.9.0/24' } }, { ipBlock: { cidr: 'fd00:172:30:9::/64' } }],
];
const PORTS: readonly Port[] = [
  { protocol: 'TCP', port: 80 },
  { protocol: 'TCP', port: 81, endPort: 82 },
  { protocol: 'UDP', port: 53 },
  { protocol: 'UDP' },
  { protocol: 'TCP', port: 'http' },
  { protocol: 'UDP', port: 'dns' },
];

/** Returns policies for a seed, and packets between places ("x/a → x/b:80/TCP"). */
export function randomPolicies(
  seed: number,
  places: readonly string[],
): { readonly policies: NetworkPolicy[]; readonly packets: string[] } {
  const random = generator(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const some = <T>(most: number, make: () => T): T[] =>
    Array.from({ length: Math.floor(random() * (most + 1)) }, make);
  const peers = (): Peer[] => {
    if (random() < 0.3) return pick(BLOCKS);
    if (random() < 0.4) return [{ podSelector: pick(PODS) }];
    if (random() < 0.5) return [{ namespaceSelector: pick(TEAMS) }];
    return [{ namespaceSelector: pick(TEAMS), podSelector: pick(PODS) }];
  };
  const rule = () => ({ peers: some(2, peers).flat(), ports: some(2, () => pick(PORTS)) });
  const spec = (): Spec => ({
    podSelector: pick(PODS),
    policyTypes: pick([['Ingress'], ['Egress'], ['Ingress', 'Egress']]),
    ingress: some(2, rule).map(({ peers, ports }) => ({ from: peers, ports })),
    egress: some(2, rule).map(({ peers, ports }) => ({ to: peers, ports })),
  });
  const policies = Array.from({ length: 1 + Math.floor(random() * 5) }, (_, i) =>
    policy(`p${i}`, spec(), pick(NAMESPACES)),
  );
  // A host outside reaches pods without translation, and pods reach it with their node's address.
  const pods = places.filter((place) => place.includes('/'));
  const packets = Array.from({ length: PACKETS }, () => {
    const from = pick([...pods, ...pods, ...places]);
    const to = pick(pods);
    const [port, protocol] = pick([
      [80, 'TCP'],
      [81, 'TCP'],
      [82, 'TCP'],
      [53, 'UDP'],
      [80, 'UDP'],
    ] as const);
    return `${from} → ${to}:${port}/${protocol}`;
  });
  return { policies, packets };
}

const CLUSTER_PEERS: readonly { namespaces?: LabelSelector; pods?: object }[] = [
  ...TEAMS.map((namespaces) => ({ namespaces })),
  ...PODS.map((podSelector) => ({ pods: { namespaceSelector: ALL, podSelector } })),
];
const PROTOCOLS = [
  { tcp: { destinationPort: { number: 80 } } },
  { tcp: { destinationPort: { range: { start: 81, end: 82 } } } },
  { udp: {} },
  { destinationNamedPort: 'http' },
];
const NETWORKS = [
  ['10.244.1.0/24', 'fd00:10:244:1::/64'],
  ['0.0.0.0/0', '::/0'],
];

/** Returns policies of the whole cluster for a seed. */
export function randomClusterPolicies(seed: number): RowClusterPolicy[] {
  const random = generator(seed);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const rule = (field: 'from' | 'to') => ({
    action: pick(['Accept', 'Deny', 'Pass']),
    [field]: [field === 'to' && random() < 0.3 ? { networks: pick(NETWORKS) } : pick(CLUSTER_PEERS)],
    ...(random() < 0.6 ? { protocols: [pick(PROTOCOLS)] } : {}),
  });
  const rules = (field: 'from' | 'to') => Array.from({ length: Math.floor(random() * 4) }, () => rule(field));
  return Array.from({ length: 1 + Math.floor(random() * 3) }, (_, i) => {
    const kind = 'ClusterNetworkPolicy';
    const spec = {
      tier: pick(['Admin', 'Baseline']),
      priority: Math.floor(random() * 4),
      subject: pick(CLUSTER_PEERS),
      ingress: rules('from'),
      egress: rules('to'),
    };
    return { kind, object: { kind, metadata: { name: `c${i}` }, spec } };
  });
}

/** Returns a Mulberry32 generator: numbers in [0, 1), the same for the same seed. */
export function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

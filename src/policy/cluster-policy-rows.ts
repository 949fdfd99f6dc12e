import type { LabelSelector, NetworkPolicy } from '../kube/types.ts';
import type { ClusterPolicyKind, ClusterPolicyObject } from './cluster-policy-reader.ts';
import type { RowClusterPolicy } from './policy-row.ts';
import { ALL, type PolicyRow, type RowScene, withLabels } from './policy-row.ts';

type Spec = NonNullable<ClusterPolicyObject['spec']>;
type Rule = NonNullable<Spec['ingress']>[number];
type Action = 'Accept' | 'Deny' | 'Pass';

type Makers = ReturnType<typeof makersFor>;

/** Returns the rows of policies of the whole cluster, beside and instead of NetworkPolicies. */
export function clusterPolicyRows(scene: RowScene): readonly PolicyRow[] {
  const makers = makersFor(scene);
  return [...tierRows(makers), ...matchRows(makers, scene)];
}

/** Returns functions that make the policies of rows. */
function makersFor(scene: RowScene) {
  const spaces = (...names: string[]): LabelSelector => ({
    matchExpressions: [
      {
        key: 'kubernetes.io/metadata.name',
        operator: 'In',
        values: names.map((name) => scene.namespace(name)),
      },
    ],
  });
  /** Only namespaces of the rows: a policy must not apply to other pods of the cluster. */
  const subject = (...names: string[]) => ({ namespaces: spaces(...names) });
  const podsOf = (name: string, text: string) => ({
    pods: { namespaceSelector: spaces(name), podSelector: withLabels(text) },
  });
  const made = (kind: ClusterPolicyKind, name: string, spec: Spec): RowClusterPolicy => ({
    kind,
    object: {
      apiVersion: `policy.networking.k8s.io/${kind === 'ClusterNetworkPolicy' ? 'v1alpha2' : 'v1alpha1'}`,
      kind,
      metadata: { name },
      spec,
    },
  });
  const cluster = (tier: 'Admin' | 'Baseline', priority: number, spec: Spec): RowClusterPolicy =>
    made('ClusterNetworkPolicy', scene.namespace(`${tier.toLowerCase()}-${priority}`), {
      tier,
      priority,
      ...spec,
    });
  const admin = (priority: number, spec: Spec) => cluster('Admin', priority, spec);
  const baseline = (priority: number, spec: Spec) => cluster('Baseline', priority, spec);
  const from = (action: Action, peers: Rule['from'] & object, more: Partial<Rule> = {}): Rule => ({
    action,
    from: peers,
    ...more,
  });
  const to = (action: Action, peers: Rule['to'] & object, more: Partial<Rule> = {}): Rule => ({
    action,
    to: peers,
    ...more,
  });
  const own = (spec: NetworkPolicy['spec'] & object, namespace = 'x'): NetworkPolicy => ({
    metadata: { name: 'own', namespace: scene.namespace(namespace) },
    spec,
  });
  const denyAll = own({ podSelector: ALL, policyTypes: ['Ingress'] });
  const allowAll = own({ podSelector: ALL, policyTypes: ['Ingress'], ingress: [{}] });
  const everyone = [{ namespaces: ALL }];
  const networks = (addresses: readonly string[]) =>
    addresses.map((one) => (one.includes('/') ? one : `${one}/${one.includes(':') ? 128 : 32}`));
  return { admin, allowAll, baseline, denyAll, everyone, from, made, networks, own, podsOf, subject, to };
}

/** Rows of the tiers and their order. */
const tierRows = ({
  subject,
  podsOf,
  admin,
  baseline,
  from,

  own,
  denyAll,
  allowAll,
  everyone,
}: Makers): readonly PolicyRow[] => [
  {
    name: 'the Admin tier denies what a NetworkPolicy allows',
    policies: [allowAll],
    clusterPolicies: [admin(10, { subject: subject('x'), ingress: [from('Deny', [subject('y')])] })],
    allowed: ['x/a → x/b:80/TCP', 'z/c → x/b:80/TCP', 'outside → x/b:80/TCP'],
    denied: ['y/a → x/b:80/TCP', 'y/a → x/a:53/UDP'],
  },
  {
    name: 'the Admin tier accepts what a NetworkPolicy denies',
    policies: [denyAll],
    clusterPolicies: [admin(10, { subject: subject('x'), ingress: [from('Accept', [subject('y')])] })],
    allowed: ['y/a → x/b:80/TCP', 'y/a → x/a:53/UDP'],
    denied: ['x/a → x/b:80/TCP', 'z/c → x/b:80/TCP', 'outside → x/b:80/TCP'],
  },
  {
    name: 'Pass skips the rest of the Admin tier, and the NetworkPolicies decide',
    policies: [own({ podSelector: withLabels('app=b'), ingress: [{ from: [{ podSelector: ALL }] }] })],
    clusterPolicies: [
      admin(10, { subject: subject('x'), ingress: [from('Pass', [subject('x', 'y')])] }),
      admin(20, { subject: subject('x'), ingress: [from('Deny', everyone)] }),
    ],
    allowed: ['x/a → x/b:80/TCP', 'y/a → x/a:80/TCP', 'x/b → x/a:80/TCP'],
    denied: ['y/a → x/b:80/TCP', 'z/c → x/b:80/TCP', 'z/c → x/a:80/TCP'],
  },
  {
    name: 'Pass without a NetworkPolicy leaves the decision to the Baseline tier',
    policies: [],
    clusterPolicies: [
      admin(10, { subject: subject('x'), ingress: [from('Pass', [subject('y')])] }),
      baseline(10, { subject: subject('x'), ingress: [from('Deny', everyone)] }),
    ],
    allowed: ['outside → x/b:80/TCP'],
    denied: ['y/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
  },
  {
    name: 'of two policies the one with the lower priority number decides',
    policies: [],
    clusterPolicies: [
      admin(20, { subject: subject('x'), ingress: [from('Deny', everyone)] }),
      admin(5, { subject: subject('x'), ingress: [from('Accept', [subject('y')])] }),
    ],
    allowed: ['y/a → x/b:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
  },
  {
    name: 'of the rules of a policy the first that matches decides',
    policies: [],
    clusterPolicies: [
      admin(10, {
        subject: subject('x'),
        ingress: [
          from('Accept', [podsOf('y', 'app=a')], {
            protocols: [{ tcp: { destinationPort: { number: 80 } } }],
          }),
          from('Deny', [subject('y')]),
          from('Accept', everyone),
        ],
      }),
    ],
    allowed: ['y/a → x/b:80/TCP', 'z/c → x/b:81/TCP'],
    denied: ['y/a → x/b:81/TCP', 'y/a → x/b:80/UDP'],
  },
  {
    name: 'the Baseline tier denies only pods without a NetworkPolicy',
    policies: [own({ podSelector: withLabels('app=b'), policyTypes: ['Ingress'], ingress: [{}] })],
    clusterPolicies: [baseline(10, { subject: subject('x'), ingress: [from('Deny', everyone)] })],
    allowed: ['y/a → x/b:80/TCP', 'outside → x/a:80/TCP', 'x/a → z/c:80/TCP'],
    denied: ['y/a → x/a:80/TCP', 'x/b → x/a:80/TCP'],
  },
  {
    name: 'the Baseline tier accepts before it denies, and Pass leaves it',
    policies: [],
    clusterPolicies: [
      baseline(1, {
        subject: subject('x'),
        ingress: [from('Accept', [subject('y')]), from('Pass', [podsOf('z', 'app=c')])],
      }),
      baseline(2, { subject: subject('x'), ingress: [from('Deny', everyone)] }),
    ],
    allowed: ['y/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
    denied: ['x/a → x/b:80/TCP'],
  },
];

/** Rows of subjects, peers and ports, and of the older kinds. */
const matchRows = (
  { subject, podsOf, made, admin, from, to, denyAll, everyone, networks }: Makers,
  scene: RowScene,
): readonly PolicyRow[] => [
  {
    name: 'a subject of pods applies to these pods only',
    policies: [],
    clusterPolicies: [
      admin(10, { subject: podsOf('x', 'app=b'), ingress: [from('Deny', [podsOf('y', 'app=a')])] }),
    ],
    allowed: ['y/a → x/a:80/TCP', 'x/a → x/b:80/TCP'],
    denied: ['y/a → x/b:80/TCP'],
  },
  {
    name: 'a pod reaches itself, and a node its pods, in spite of a rule that denies',
    policies: [],
    clusterPolicies: [
      admin(10, {
        subject: subject('x'),
        ingress: [from('Deny', everyone)],
        egress: [to('Deny', everyone)],
      }),
    ],
    allowed: ['x/b → x/b:80/TCP', 'node-1 → x/b:80/TCP', 'outside → x/b:80/TCP', 'x/a → outside:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'x/a → y/a:80/TCP', 'y/a → x/a:53/UDP'],
  },
  {
    name: 'egress to networks',
    policies: [],
    clusterPolicies: [
      admin(10, {
        subject: podsOf('x', 'app=a'),
        egress: [
          to('Accept', [{ networks: networks(scene.farNetworks) }]),
          to('Deny', [{ networks: [...networks(scene.podNetworks), ...networks(scene.outside)] }]),
        ],
      }),
    ],
    allowed: ['x/a → z/c:80/TCP', 'x/b → y/a:80/TCP', 'y/a → x/a:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'x/a → y/a:53/UDP', 'x/a → outside:80/TCP'],
  },
  {
    name: 'egress to nodes, by their labels',
    policies: [],
    clusterPolicies: [
      admin(10, {
        subject: subject('x'),
        egress: [to('Deny', [{ nodes: withLabels(`kubernetes.io/hostname=${scene.node('node-1')}`) }])],
      }),
    ],
    allowed: ['x/a → node-2:80/TCP', 'x/a → outside:80/TCP', 'x/a → x/b:80/TCP', 'y/a → node-1:80/TCP'],
    denied: ['x/a → node-1:80/TCP', 'x/b → node-1:53/UDP'],
  },
  {
    name: 'ranges of ports, all ports of a protocol, and named ports',
    policies: [],
    clusterPolicies: [
      admin(10, {
        subject: subject('x'),
        ingress: [
          from('Deny', everyone, {
            protocols: [
              { tcp: { destinationPort: { range: { start: 81, end: 82 } } } },
              { udp: { destinationPort: { number: 80 } } },
            ],
          }),
        ],
      }),
      admin(20, {
        subject: subject('y'),
        ingress: [from('Deny', everyone, { protocols: [{ destinationNamedPort: 'http' }] })],
      }),
    ],
    allowed: ['x/a → x/b:80/TCP', 'x/a → x/b:53/UDP', 'x/a → y/a:80/TCP'],
    denied: ['x/a → x/b:81/TCP', 'x/a → x/b:82/TCP', 'x/a → x/b:80/UDP', 'x/a → y/a:81/TCP'],
  },
  {
    name: 'the sender and the receiver must both accept',
    policies: [denyAll],
    clusterPolicies: [admin(10, { subject: subject('y', 'z'), egress: [to('Accept', everyone)] })],
    allowed: ['y/a → z/c:80/TCP'],
    denied: ['y/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
  },
  {
    name: 'AdminNetworkPolicy and BaselineAdminNetworkPolicy, with ports',
    policies: [],
    clusterPolicies: [
      made('AdminNetworkPolicy', scene.namespace('admin'), {
        priority: 10,
        subject: subject('x'),
        ingress: [
          { action: 'Allow', from: [subject('y')], ports: [{ portNumber: { protocol: 'TCP', port: 80 } }] },
          {
            action: 'Pass',
            from: [subject('y')],
            ports: [{ portRange: { protocol: 'TCP', start: 81, end: 81 } }],
          },
          {
            action: 'Deny',
            from: [subject('y')],
            ports: [{ portRange: { protocol: 'TCP', start: 82, end: 90 } }],
          },
        ],
      }),
      made('BaselineAdminNetworkPolicy', 'default', {
        subject: subject('x'),
        ingress: [{ action: 'Deny', from: [subject('y')], ports: [{ namedPort: 'alt' }] }],
      }),
    ],
    allowed: ['y/a → x/b:80/TCP', 'y/a → x/a:81/TCP', 'y/a → x/b:53/UDP', 'z/c → x/b:82/TCP'],
    denied: ['y/a → x/b:81/TCP', 'y/a → x/b:82/TCP'],
  },
];

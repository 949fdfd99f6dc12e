import type { NetworkPolicy } from '../kube/types.ts';
import { ALL, type PolicyRow, type RowPod, type RowScene, withLabels } from './policy-row.ts';

export const ROW_PODS: readonly RowPod[] = [
  { key: 'x/a', labels: 'app=a', node: 'node-1', ports: ['http=80/TCP'] },
  {
    key: 'x/b',
    labels: 'app=b,tier=web',
    node: 'node-1',
    ports: ['http=80/TCP', 'alt=81/TCP', 'dns=53/UDP'],
  },
  { key: 'y/a', labels: 'app=a', node: 'node-1', ports: ['http=81/TCP'] },
  { key: 'z/c', labels: 'app=c,tier=web', node: 'node-2', ports: ['http=81/TCP'] },
];

/** The labels of the rows' namespaces. */
export const ROW_NAMESPACES: Readonly<Record<string, string>> = {
  x: 'team=blue',
  y: 'team=red',
  z: 'team=blue',
};

/** The ports that each pod of the rows, each node and the host outside listen on. */
export const ROW_PORTS: Readonly<Record<'TCP' | 'UDP', readonly number[]>> = {
  TCP: [80, 81, 82],
  UDP: [53, 80],
};

type Spec = NonNullable<NetworkPolicy['spec']>;
const isolate = (types: string[]): Spec => ({ podSelector: ALL, policyTypes: types });
const ingressTo = (app: string, ingress: Spec['ingress'] & object): Spec => ({
  podSelector: withLabels(`app=${app}`),
  policyTypes: ['Ingress'],
  ingress,
});
const egressFrom = (app: string, egress: Spec['egress'] & object): Spec => ({
  podSelector: withLabels(`app=${app}`),
  policyTypes: ['Egress'],
  egress,
});

type MakePolicy = (name: string, spec: Spec, namespace?: string) => NetworkPolicy;

/**
 * Returns the packets that each set of policies allows and denies. A client is a pod, "node-1" or "node-2" (a process
 * there), or "outside".
 */
export function policyRows(scene: RowScene): readonly PolicyRow[] {
  const policy: MakePolicy = (name, spec, namespace = 'x') => ({
    metadata: { name, namespace: scene.namespace(namespace) },
    spec,
  });
  return [...isolationRows(policy), ...peerRows(policy, scene), ...portRows(policy), ...severalRows(policy)];
}

/** Rows of policies without rules, and with an empty one. */
const isolationRows = (policy: MakePolicy): readonly PolicyRow[] => [
  {
    name: 'without a policy all packets are allowed',
    policies: [],
    allowed: ['x/a → x/b:80/TCP', 'outside → x/b:80/TCP', 'x/b → z/c:53/UDP'],
  },
  {
    name: 'an ingress policy without rules denies all except the pod’s node and the pod itself',
    policies: [policy('deny', isolate(['Ingress']))],
    allowed: ['x/a → y/a:80/TCP', 'node-1 → x/b:80/TCP', 'x/b → x/b:80/TCP'],
    denied: [
      'x/a → x/b:80/TCP',
      'y/a → x/b:80/TCP',
      'z/c → x/b:53/UDP',
      'outside → x/b:80/TCP',
      'node-2 → x/b:80/TCP',
    ],
  },
  {
    name: 'an egress policy without rules denies all packets sent by its pods',
    policies: [policy('deny', isolate(['Egress']))],
    allowed: ['y/a → x/b:80/TCP', 'outside → x/a:80/TCP', 'x/a → x/a:80/TCP'],
    denied: [
      'x/a → x/b:80/TCP',
      'x/a → z/c:80/TCP',
      'x/b → y/a:53/UDP',
      'x/a → node-1:80/TCP',
      'x/a → outside:80/TCP',
    ],
  },
  {
    name: 'an empty rule allows everything',
    policies: [policy('open', { ...isolate(['Ingress', 'Egress']), ingress: [{}], egress: [{}] })],
    allowed: ['x/a → x/b:80/TCP', 'outside → x/b:81/TCP', 'x/a → outside:80/TCP', 'x/b → z/c:53/UDP'],
  },
];

/** Rows of selectors and networks. */
const peerRows = (policy: MakePolicy, scene: RowScene): readonly PolicyRow[] => [
  {
    name: 'a podSelector selects pods of the policy’s namespace',
    policies: [policy('p', ingressTo('b', [{ from: [{ podSelector: withLabels('app=a') }] }]))],
    allowed: ['x/a → x/b:80/TCP', 'x/a → x/b:53/UDP'],
    denied: ['y/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
  },
  {
    name: 'a namespaceSelector selects all pods of namespaces',
    policies: [policy('p', ingressTo('b', [{ from: [{ namespaceSelector: withLabels('team=blue') }] }]))],
    allowed: ['x/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
    denied: ['y/a → x/b:80/TCP'],
  },
  {
    name: 'both selectors of one peer must match',
    policies: [
      policy(
        'p',
        ingressTo('b', [
          { from: [{ namespaceSelector: withLabels('team=blue'), podSelector: withLabels('tier=web') }] },
        ]),
      ),
    ],
    allowed: ['z/c → x/b:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'y/a → x/b:80/TCP'],
  },
  {
    name: 'two peers are alternatives',
    policies: [
      policy(
        'p',
        ingressTo('b', [
          { from: [{ namespaceSelector: withLabels('team=red') }, { podSelector: withLabels('app=a') }] },
        ]),
      ),
    ],
    allowed: ['x/a → x/b:80/TCP', 'y/a → x/b:80/TCP'],
    denied: ['z/c → x/b:80/TCP'],
  },
  {
    name: 'matchExpressions of selectors are used',
    policies: [
      policy(
        'p',
        ingressTo('b', [
          {
            from: [
              {
                namespaceSelector: {
                  matchExpressions: [{ key: 'team', operator: 'In', values: ['red', 'green'] }],
                },
              },
            ],
          },
        ]),
      ),
    ],
    allowed: ['y/a → x/b:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'z/c → x/b:80/TCP'],
  },
  {
    name: 'an ipBlock allows its addresses except those excepted',
    policies: [
      policy(
        'p',
        ingressTo('b', [
          {
            from: scene.podNetworks.map((cidr) => ({
              ipBlock: {
                cidr,
                except: scene.farNetworks.filter((far) => far.includes(':') === cidr.includes(':')),
              },
            })),
          },
        ]),
      ),
    ],
    allowed: ['x/a → x/b:80/TCP', 'y/a → x/b:80/TCP'],
    denied: ['z/c → x/b:80/TCP', 'outside → x/b:80/TCP'],
  },
  {
    name: 'an ipBlock for egress allows addresses outside',
    policies: [
      policy(
        'p',
        egressFrom('a', [
          {
            to: scene.outside.map((address) => ({
              ipBlock: { cidr: `${address}/${address.includes(':') ? 128 : 32}` },
            })),
          },
        ]),
      ),
    ],
    allowed: ['x/a → outside:80/TCP'],
    denied: ['x/a → x/b:80/TCP', 'x/a → z/c:80/TCP', 'x/a → node-1:80/TCP'],
  },
];

/** Rows of ports. */
const portRows = (policy: MakePolicy): readonly PolicyRow[] => [
  {
    name: 'a port allows only its protocol',
    policies: [policy('p', ingressTo('b', [{ ports: [{ protocol: 'TCP', port: 80 }] }]))],
    allowed: ['x/a → x/b:80/TCP', 'outside → x/b:80/TCP'],
    denied: ['x/a → x/b:81/TCP', 'x/a → x/b:80/UDP'],
  },
  {
    name: 'a protocol without a port allows all its ports',
    policies: [policy('p', ingressTo('b', [{ ports: [{ protocol: 'UDP' }] }]))],
    allowed: ['x/a → x/b:53/UDP', 'x/a → x/b:80/UDP'],
    denied: ['x/a → x/b:80/TCP'],
  },
  {
    name: 'endPort makes a range, and ports are alternatives',
    policies: [
      policy(
        'p',
        ingressTo('b', [
          {
            ports: [
              { protocol: 'TCP', port: 80, endPort: 81 },
              { protocol: 'UDP', port: 53 },
            ],
          },
        ]),
      ),
    ],
    allowed: ['x/a → x/b:80/TCP', 'x/a → x/b:81/TCP', 'x/a → x/b:53/UDP'],
    denied: ['x/a → x/b:82/TCP', 'x/a → x/b:80/UDP'],
  },
  {
    name: 'a port name is resolved for the selected pod',
    policies: [policy('p', { ...isolate(['Ingress']), ingress: [{ ports: [{ port: 'alt' }] }] })],
    allowed: ['y/a → x/b:81/TCP'],
    denied: ['y/a → x/b:80/TCP', 'y/a → x/a:81/TCP', 'y/a → x/a:80/TCP'],
  },
  {
    name: 'for egress, a port name is resolved for the receiver',
    policies: [
      policy('p', egressFrom('a', [{ to: [{ namespaceSelector: ALL }], ports: [{ port: 'http' }] }])),
    ],
    allowed: ['x/a → x/b:80/TCP', 'x/a → y/a:81/TCP', 'x/a → z/c:81/TCP'],
    denied: ['x/a → x/b:81/TCP', 'x/a → y/a:80/TCP', 'x/a → z/c:80/TCP', 'x/a → outside:80/TCP'],
  },
  {
    name: 'a rule with ports and peers requires both',
    policies: [
      policy('p', ingressTo('b', [{ from: [{ podSelector: withLabels('app=a') }], ports: [{ port: 80 }] }])),
    ],
    allowed: ['x/a → x/b:80/TCP'],
    denied: ['x/a → x/b:81/TCP', 'y/a → x/b:80/TCP'],
  },
];

/** Rows of several policies, and of both ends. */
const severalRows = (policy: MakePolicy): readonly PolicyRow[] => [
  {
    name: 'policies are additive',
    policies: [
      policy('deny', isolate(['Ingress'])),
      policy('p1', ingressTo('b', [{ from: [{ podSelector: withLabels('app=a') }] }])),
      policy('p2', ingressTo('b', [{ from: [{ namespaceSelector: withLabels('team=red') }] }])),
    ],
    allowed: ['x/a → x/b:80/TCP', 'y/a → x/b:80/TCP'],
    denied: ['z/c → x/b:80/TCP', 'y/a → x/a:80/TCP'],
  },
  {
    name: 'both ends must allow a packet',
    policies: [
      policy('out', egressFrom('a', [{ to: [{ namespaceSelector: withLabels('team=blue') }] }])),
      policy('in', ingressTo('c', [{ from: [{ podSelector: ALL }] }]), 'z'),
    ],
    allowed: ['x/a → x/b:80/TCP', 'y/a → x/b:80/TCP'],
    denied: ['x/a → z/c:80/TCP', 'x/a → y/a:80/TCP', 'y/a → z/c:80/TCP'],
  },
  {
    name: 'without policyTypes, egress rules isolate for egress too',
    policies: [
      policy('p', {
        podSelector: withLabels('app=a'),
        egress: [{ to: [{ podSelector: withLabels('app=b') }] }],
      }),
    ],
    allowed: ['x/a → x/b:80/TCP'],
    denied: ['x/a → y/a:80/TCP', 'y/a → x/a:80/TCP'],
  },
  {
    name: 'policies of another namespace do not affect a pod',
    policies: [policy('deny', isolate(['Ingress', 'Egress']), 'y')],
    allowed: ['x/a → x/b:80/TCP', 'z/c → x/a:80/TCP'],
    denied: ['x/a → y/a:80/TCP', 'y/a → x/a:80/TCP'],
  },
];

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { NetworkPolicy, Pod } from '../kube/types.ts';
import type { ClusterPolicyObject } from '../policy/cluster-policy-reader.ts';
import { clusterPolicyConditions } from './cluster-policy-status.ts';
import { clusterPolicyHints, policyHints } from './policy-hints.ts';
import { pod } from './testing/objects.ts';

const web = (name: string, extra: Partial<NonNullable<Pod['spec']>> = {}): Pod =>
  pod(name, {
    labels: { app: 'web' },
    spec: { containers: [{ name: 'main', ports: [{ name: 'http', containerPort: 80 }] }], ...extra },
  });
const policy = (spec: NetworkPolicy['spec']): NetworkPolicy => ({
  metadata: { name: 'p', namespace: 'default' },
  ...(spec ? { spec } : {}),
});
const WEB = { podSelector: { matchLabels: { app: 'web' } } };

const rows: readonly [what: string, spec: NetworkPolicy['spec'], pods: Pod[], expected: RegExp[]][] = [
  ['a policy that selects a pod', WEB, [web('a')], []],
  ['a policy that selects no pod', WEB, [], [/selects no pod/]],
  ['a policy whose pods are in another namespace', WEB, [inNamespace(web('a'), 'other')], [/selects no pod/]],
  ['a policy whose pods have ended', WEB, [pod('a', { phase: 'Succeeded' })], [/selects no pod/]],
  [
    'a policy for pods of the node’s network',
    WEB,
    [web('a', { hostNetwork: true })],
    [/only pods with hostNetwork \(1\)/],
  ],
  [
    'an ingress port with a name of the pods',
    { ...WEB, ingress: [{ ports: [{ port: 'http' }] }] },
    [web('a')],
    [],
  ],
  [
    'an ingress port that no selected pod has',
    { ...WEB, ingress: [{ ports: [{ port: 80 }, { port: 'https' }] }] },
    [web('a')],
    [/spec\.ingress\[0\]\.ports\[1\]: none of the selected pods has a TCP port named https/],
  ],
  [
    'an ingress port of another protocol',
    { ...WEB, ingress: [{ ports: [{ port: 'http', protocol: 'UDP' }] }] },
    [web('a')],
    [/has a UDP port named http/],
  ],
  [
    'an egress port that a pod has',
    { ...WEB, egress: [{ ports: [{ port: 'http' }] }] },
    [pod('b'), inNamespace(web('a'), 'other'), web('c', { containers: [{ name: 'main' }] })],
    [],
  ],
  [
    'an egress port that no pod has',
    { ...WEB, egress: [{}, { ports: [{ port: 'https' }] }] },
    [web('a')],
    [/spec\.egress\[1\]\.ports\[0\]: no pod has a TCP port named https/],
  ],
];
test('a name of the annotation that allows nothing: a hint', () => {
  const annotations = { 'fairlead.dev/egress-names': 'localhost' };
  const object = {
    metadata: { name: 'p', namespace: 'default', annotations },
    spec: { ...WEB, egress: [{}] },
  };
  const [hint, ...others] = policyHints(object, [web('a')]);
  assert.equal(hint?.reason, 'NameIgnored');
  assert.match(hint.message, /"localhost" is not a name/);
  assert.deepEqual(others, []);
});
for (const [what, spec, pods, expected] of rows) {
  test(`${what}: ${expected.length === 0 ? 'no hint' : 'a hint'}`, () => {
    const messages = policyHints(policy(spec), pods).map(({ message }) => message);
    assert.equal(messages.length, expected.length, messages.join());
    for (const [i, pattern] of expected.entries()) assert.match(messages[i] ?? '', pattern);
  });
}

function inNamespace(one: Pod, namespace: string): Pod {
  return { ...one, metadata: { ...one.metadata, namespace } };
}

describe('policies of the whole cluster', () => {
  const namespaces = [{ metadata: { name: 'default', labels: { team: 'red' } } }];
  const blue = { matchLabels: { team: 'blue' } };
  const red = { matchLabels: { team: 'red' } };
  const rows: [what: string, spec: ClusterPolicyObject['spec'] & object, expected: RegExp[]][] = [
    ['a policy that selects a pod', { subject: { namespaces: red } }, []],
    ['a policy that selects no pod', { subject: { namespaces: blue } }, [/spec\.subject selects no pod/]],
    [
      'domain names',
      {
        subject: { namespaces: red },
        egress: [{ action: 'Deny', to: [{ domainNames: ['a.example'] } as object] }],
      },
      [/spec\.egress\[0\]\.to\[0\]\.domainNames is not supported/],
    ],
  ];
  for (const [what, spec, expected] of rows) {
    test(what, () => {
      const object = { metadata: { name: 'p' }, spec: { tier: 'Admin', priority: 1, ...spec } };
      const found = clusterPolicyHints('ClusterNetworkPolicy', object, [web('a')], namespaces);
      assert.equal(found.length, expected.length, found.map(({ message }) => message).join());
      for (const [i, pattern] of expected.entries()) assert.match(found[i]?.message ?? '', pattern);
    });
  }
});

describe('conditions of policies of the whole cluster', () => {
  const subject = { namespaces: {} };
  const accepted: ClusterPolicyObject['spec'] & object = { tier: 'Admin', priority: 1, subject };
  const refused = {
    ...accepted,
    egress: [{ action: 'Deny', to: [{ domainNames: ['a.example'] } as object] }],
  };
  const NOW = Date.parse('2025-01-01T00:00:10Z');
  const condition = (status: string, observedGeneration: number) => ({
    type: 'Accepted',
    status,
    reason: status === 'True' ? 'Accepted' : 'UnsupportedField',
    message: status === 'True' ? 'all fields are supported' : 'not supported: …',
    observedGeneration,
    lastTransitionTime: '2025-01-01T00:00:00Z',
  });
  const other = { ...condition('True', 1), type: 'Other' };
  const rows: [
    what: string,
    spec: typeof accepted,
    before: (typeof other)[],
    expected: [type: string, status: string, time: string][] | null,
  ][] = [
    ['a new policy is accepted', accepted, [], [['Accepted', 'True', '10Z']]],
    ['a field that is not supported', refused, [], [['Accepted', 'False', '10Z']]],
    ['an unchanged policy', accepted, [condition('True', 2)], null],
    [
      'a change that is accepted again keeps the time of the transition',
      accepted,
      [condition('True', 1)],
      [['Accepted', 'True', '00Z']],
    ],
    [
      'a change that is no longer accepted',
      refused,
      [condition('True', 1), other],
      [
        ['Other', 'True', '00Z'],
        ['Accepted', 'False', '10Z'],
      ],
    ],
  ];
  for (const [what, spec, before, expected] of rows) {
    test(what, () => {
      const object = { metadata: { name: 'p', generation: 2 }, spec, status: { conditions: before } };
      const found = clusterPolicyConditions('ClusterNetworkPolicy', object, NOW);
      const shown = found?.map((one) => [one.type, one.status, one.lastTransitionTime.slice(-3)]) ?? null;
      assert.deepEqual(shown, expected);
      const message = found?.find(({ status }) => status === 'False')?.message;
      if (message) assert.match(message, /spec\.egress\[0\]\.to\[0\]\.domainNames/);
    });
  }
});

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { allows, type PolicyPacket } from './allows.ts';
import { readClusterPolicy } from './cluster-policy-reader.ts';
import { rowPacket } from './policy-row.ts';
import { createPolicyTable, type PolicyTable } from './policy-table.ts';
import { mayBeDenied } from './silence.ts';
import {
  ALL,
  fill,
  NAMESPACES,
  namespace,
  node,
  PODS,
  POLICY_ROWS,
  pod,
  policy,
  withLabels,
} from './testing/policy-objects.ts';

/** Addresses that do not belong to pods, by family. */
const PLACES: Readonly<Record<string, readonly string[]>> = {
  'node-1': ['172.30.9.11', 'fd00:172:30:9::11'],
  'node-2': ['172.30.9.12', 'fd00:172:30:9::12'],
  outside: ['172.30.9.2', 'fd00:172:30:9::2'],
};

const NODES = ['node-1', 'node-2'].map((name) => node(name, PLACES[name] ?? []));

function packet(text: string, family: 0 | 1): PolicyPacket {
  const { from, to, port, protocol } = rowPacket(text);
  const addressOf = (name: string) =>
    (PLACES[name] ?? PODS.find(({ key }) => key === name)?.ips)?.[family] ?? '';
  const isNode = from.startsWith('node-');
  return {
    source: addressOf(from),
    destination: addressOf(to),
    protocol,
    port,
    ...(isNode ? { fromNode: from } : {}),
  };
}

describe('policies allow and deny', () => {
  for (const { name, policies, clusterPolicies, allowed = [], denied = [] } of POLICY_ROWS) {
    test(name, () => {
      const table = createPolicyTable('node-1');
      fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), nodes: NODES, policies, clusterPolicies });
      for (const family of [0, 1] as const) {
        for (const text of allowed) assert.ok(allows(table, packet(text, family)).isAllowed, text);
        for (const text of denied) assert.ok(!allows(table, packet(text, family)).isAllowed, text);
      }
    });
  }
});

describe('pods that policies apply to', () => {
  const deny = policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] });
  const rows: [name: string, extra: Partial<Parameters<typeof pod>[0]>, isAllowed: boolean][] = [
    ['a running pod is isolated', {}, false],
    ['a pod that is being deleted is still isolated', { deleted: true }, false],
    ['a pod in its node’s network is not isolated', { hostNetwork: true }, true],
    ['a pod that has ended has released its address', { phase: 'Succeeded' }, true],
  ];
  for (const [name, extra, isAllowed] of rows) {
    test(name, () => {
      const table = createPolicyTable('node-1');
      const ips = ['10.244.1.12'];
      fill(table, { namespaces: NAMESPACES, pods: [pod({ key: 'x/b', ips, ...extra })], policies: [deny] });
      const sent = { source: '10.0.0.1', destination: '10.244.1.12', protocol: 'TCP', port: 80 } as const;
      assert.equal(allows(table, sent).isAllowed, isAllowed);
    });
  }
});

test('a verdict names the policy, the rule and the peer', () => {
  const table = createPolicyTable('node-1');
  const rules = [
    { from: [{ podSelector: withLabels('app=z') }] },
    { from: [{ podSelector: withLabels('app=z') }, { podSelector: withLabels('app=a') }] },
  ];
  const policies = [policy('p', { podSelector: withLabels('app=b'), ingress: rules })];
  fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies });
  assert.deepEqual(allows(table, packet('x/a → x/b:80/TCP', 0)).ingress, {
    direction: 'ingress',
    pod: 'x/b',
    isAllowed: true,
    reason: { kind: 'rule', policy: 'x/p', tier: 'NetworkPolicy', rule: 1, peer: 1 },
  });
  assert.deepEqual(allows(table, packet('y/a → x/b:80/TCP', 0)).ingress.reason, {
    kind: 'no-rule',
    policies: ['x/p'],
  });
});

test('a verdict names the tier and the rule of a policy of the whole cluster', () => {
  const table = createPolicyTable('node-1');
  const spec = {
    tier: 'Admin',
    priority: 1,
    subject: { namespaces: withLabels('team=blue') },
    ingress: [
      { action: 'Accept', from: [{ namespaces: withLabels('team=green') }] },
      {
        action: 'Deny',
        from: [{ namespaces: withLabels('team=green') }, { namespaces: withLabels('team=red') }],
      },
    ],
  };
  const clusterPolicies = [
    { kind: 'ClusterNetworkPolicy', object: { metadata: { name: 'no-red' }, spec } },
  ] as const;
  fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies: [], clusterPolicies });
  assert.deepEqual(allows(table, packet('y/a → x/b:80/TCP', 0)).ingress, {
    direction: 'ingress',
    pod: 'x/b',
    isAllowed: false,
    reason: { kind: 'rule', policy: 'ClusterNetworkPolicy/no-red', tier: 'Admin', rule: 1, peer: 1 },
  });
});

describe('a rule that is not understood fails closed', () => {
  const rows: [what: string, rule: object, unsupported: string[], isAllowed: boolean][] = [
    [
      'accepting malformed domain names accepts nothing, and a later rule decides',
      { action: 'Accept', to: [{ domainNames: ['example.com', 'localhost'] }] },
      ['spec.egress[0].to[0].domainNames'],
      false,
    ],
    [
      'passing domain names denies everything',
      { action: 'Pass', to: [{ domainNames: ['example.com'] }] },
      ['spec.egress[0].to[0].domainNames'],
      false,
    ],
    [
      'an unknown peer of Pass denies everything',
      { action: 'Pass', to: [{}] },
      ['spec.egress[0].to[0]'],
      false,
    ],
    [
      'an unknown action denies',
      { action: 'Log', to: [{ namespaces: {} }] },
      ['spec.egress[0].action'],
      false,
    ],
    [
      'an unknown protocol of an accepting rule accepts nothing',
      { action: 'Accept', to: [{ namespaces: {} }], protocols: [{ icmp: {} }] },
      ['spec.egress[0].protocols[0]'],
      false,
    ],
    ['a known rule accepts', { action: 'Accept', to: [{ namespaces: {} }] }, [], true],
  ];
  for (const [what, rule, unsupported, isAllowed] of rows) {
    test(what, () => {
      const deny = { action: 'Deny', to: [{ namespaces: {} }] };
      const spec = { tier: 'Admin', priority: 1, subject: { namespaces: {} }, egress: [rule, deny] };
      const read = readClusterPolicy('ClusterNetworkPolicy', { metadata: { name: 'p' }, spec });
      assert.deepEqual(read.unsupported, unsupported);
      const table = createPolicyTable('node-1');
      fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies: [] });
      table.setClusterPolicy(read.policy);
      assert.equal(allows(table, packet('x/a → x/b:80/TCP', 0)).isAllowed, isAllowed);
    });
  }
});

describe('names in a rule', () => {
  const names = { name: 'api.example.com', until: 1 };
  const subject = { namespaces: {} };
  const accepted = {
    action: 'Accept',
    to: [{ domainNames: ['API.Example.com', '*.example.org.'] }],
    protocols: [{ tcp: { destinationPort: { number: 443 } } }],
  };
  const spec = {
    tier: 'Admin',
    priority: 1,
    subject,
    egress: [accepted, { action: 'Deny', to: [{ networks: ['0.0.0.0/0'] }] }],
  };
  const { policy: read, unsupported } = readClusterPolicy('ClusterNetworkPolicy', {
    metadata: { name: 'p' },
    spec,
  });
  /** Pod x/a got this address for a name of the rule. */
  const table = createPolicyTable('node-1', (key, { patterns }, address) =>
    key === 'x/a' && patterns.join() === '*.example.org,api.example.com' && address === '198.51.100.7'
      ? names
      : null,
  );
  fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies: [] });
  table.setClusterPolicy(read);
  const sent = (from: string, destination: string, port: number) =>
    allows(table, { source: sourceOf(from), destination, port, protocol: 'TCP' });
  const sourceOf = (key: string) => PODS.find((one) => one.key === key)?.ips[0] ?? '';

  test('accepts what the pod got, at the ports of the rule, and names the name', () => {
    assert.deepEqual(unsupported, []);
    assert.equal(table.usesNames, true);
    const { egress, isAllowed } = sent('x/a', '198.51.100.7', 443);
    assert.equal(isAllowed, true);
    assert.deepEqual(egress.reason, {
      kind: 'rule',
      policy: 'ClusterNetworkPolicy/p',
      tier: 'Admin',
      rule: 0,
      peer: 0,
      learned: names,
    });
  });
  for (const [what, from, address, port] of [
    ['another address', 'x/a', '198.51.100.8', 443],
    ['another port', 'x/a', '198.51.100.7', 80],
    ['another pod', 'x/b', '198.51.100.7', 443],
  ] as const) {
    test(`does not accept ${what}`, () => assert.equal(sent(from, address, port).isAllowed, false));
  }
  test('are counted while a policy has them', () => {
    table.deletePolicy(read.key);
    assert.equal(table.usesNames, false);
  });
});

describe('an unanswered connection that policies may deny is ignored for its endpoint', () => {
  const only = policy('p', {
    podSelector: withLabels('tier=web'),
    ingress: [{ from: [{ podSelector: withLabels('app=a') }] }],
  });
  const rows: [name: string, client: string | null, to: string, node: string, isDenied: boolean][] = [
    ['a client that is denied', '10.244.1.13', '10.244.1.12', 'node-1', true],
    ['a client that is allowed', '10.244.1.11', '10.244.1.12', 'node-1', false],
    ['the node of the pod itself', null, '10.244.1.12', 'node-1', false],
    ['another node', null, '10.244.1.12', 'node-2', true],
    ['a pod that is not isolated', null, '10.244.1.11', 'node-2', false],
  ];
  for (const [name, client, ip, node, isDenied] of rows) {
    test(name, () => {
      const table = createPolicyTable('node-1');
      fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies: [only] });
      const endpoint = { ip, port: 80 };
      assert.equal(mayBeDenied(table, { client, endpoint, protocol: 'TCP', node }), isDenied);
    });
  }
});

describe('changes affect the verdict', () => {
  const only = policy('p', {
    podSelector: withLabels('app=b'),
    ingress: [{ from: [{ namespaceSelector: withLabels('team=green') }] }],
  });
  const sent = packet('y/a → x/b:80/TCP', 0);
  const rows: [name: string, change: (table: PolicyTable) => void, isAllowed: boolean][] = [
    ['a namespace gets a label', (table) => table.setNamespace(namespace('y', 'team=green')), true],
    ['the policy is deleted', (table) => table.deletePolicy('x/p'), true],
    [
      'the pod loses the label that selects it',
      (table) => table.setPod(pod({ key: 'x/b', ips: ['10.244.1.12'] })),
      true,
    ],
    [
      'a later pod has the address',
      (table) => table.setPod(pod({ key: 'z/d', labels: 'app=d', ips: ['10.244.1.12'] })),
      true,
    ],
    ['no object changes', () => {}, false],
  ];
  for (const [name, change, isAllowed] of rows) {
    test(name, () => {
      const table = createPolicyTable('node-1');
      fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies: [only] });
      change(table);
      assert.equal(allows(table, sent).isAllowed, isAllowed);
    });
  }
});

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { printTable } from '../nft/print.ts';
import { readClusterPolicy } from './cluster-policy-reader.ts';
import type { RowClusterPolicy } from './policy-row.ts';
import { createPolicyTable } from './policy-table.ts';
import { createPolicyRendering } from './render.ts';
import { ALL, fill, NAMESPACES, PODS, pod, policy, withLabels } from './testing/policy-objects.ts';

const POLICIES = [
  policy('deny', { podSelector: ALL, policyTypes: ['Ingress'] }),
  policy('web', {
    podSelector: withLabels('app=b'),
    policyTypes: ['Ingress', 'Egress'],
    ingress: [
      { from: [{ podSelector: withLabels('app=a') }], ports: [{ port: 80 }] },
      {
        from: [
          { ipBlock: { cidr: '10.0.0.0/8', except: ['10.1.0.0/16'] } },
          { ipBlock: { cidr: 'fd00::/8' } },
        ],
        ports: [
          { port: 8000, endPort: 8100 },
          { protocol: 'UDP', port: 53 },
        ],
      },
    ],
    egress: [{ to: [{ namespaceSelector: withLabels('team=blue') }], ports: [{ port: 'http' }] }],
  }),
  // It selects no pod of this node, so it is not rendered.
  policy('elsewhere', { podSelector: ALL, ingress: [{ from: [{ podSelector: ALL }] }] }, 'z'),
];

const subject = { namespaces: withLabels('team=blue') };
const CLUSTER_POLICIES: readonly RowClusterPolicy[] = [
  {
    kind: 'ClusterNetworkPolicy',
    object: {
      metadata: { name: 'admin' },
      spec: {
        tier: 'Admin',
        priority: 10,
        subject,
        ingress: [
          { action: 'Pass', from: [subject], protocols: [{ tcp: { destinationPort: { number: 80 } } }] },
          { action: 'Deny', from: [{ namespaces: ALL }] },
        ],
        egress: [{ action: 'Accept', to: [{ networks: ['10.244.0.0/16'] }] }],
      },
    },
  },
  {
    kind: 'BaselineAdminNetworkPolicy',
    object: {
      metadata: { name: 'default' },
      spec: { subject, egress: [{ action: 'Deny', to: [{ nodes: ALL }] }] },
    },
  },
];

function table(policies = POLICIES) {
  const made = createPolicyTable('node-1');
  fill(made, { namespaces: NAMESPACES, pods: PODS.map(pod), policies });
  return made;
}

/** `node --test --test-update-snapshots FILE` updates the files. */
for (const family of ['ipv4', 'ipv6'] as const) {
  test(`the ${family} table equals golden/${family}.nft`, (t) => {
    const spec = createPolicyRendering(table(), { family }).table();
    const file = join(import.meta.dirname, 'golden', `${family}.nft`);
    t.assert.fileSnapshot(spec && printTable(spec), file, { serializers: [String] });
  });
}

test('the table of policies of the whole cluster equals golden/cluster.nft', (t) => {
  const made = table();
  for (const { kind, object } of CLUSTER_POLICIES)
    made.setClusterPolicy(readClusterPolicy(kind, object).policy);
  const spec = createPolicyRendering(made, { family: 'ipv4' }).table();
  const file = join(import.meta.dirname, 'golden', 'cluster.nft');
  t.assert.fileSnapshot(spec && printTable(spec), file, { serializers: [String] });
});

for (const family of ['ipv4', 'ipv6'] as const) {
  test(`the ${family} table of a policy with names equals golden/names-${family}.nft`, (t) => {
    const named = {
      ...policy('names', { podSelector: withLabels('app=b'), policyTypes: ['Egress'] }),
      metadata: {
        name: 'names',
        namespace: 'x',
        annotations: {
          'fairlead.dev/egress-names': 'api.example.com:443, *.example.org:443, any.example.org',
        },
      },
    };
    const spec = createPolicyRendering(table([named]), { family, noteSecret: 'secret' }).table();
    const file = join(import.meta.dirname, 'golden', `names-${family}.nft`);
    t.assert.fileSnapshot(spec && printTable(spec), file, { serializers: [String] });
  });
}

test('a node whose pods no policy isolates has no table', () => {
  const of = (policies: typeof POLICIES) =>
    createPolicyRendering(table(policies), { family: 'ipv4' }).table();
  assert.equal(of([]), null);
  assert.equal(of(POLICIES.slice(2)), null);
});

describe('a change affects only the necessary parts', () => {
  const rows: [
    what: string,
    change: (one: ReturnType<typeof table>) => void,
    pods: string[],
    policies: string[],
  ][] = [
    [
      'a pod selected by a peer is created',
      (one) => one.setPod(pod({ key: 'x/new', labels: 'app=a', node: 'node-2', ips: ['10.244.2.50'] })),
      ['x/new'],
      [],
    ],
    [
      'a pod gets a label that no selector uses',
      (one) =>
        one.setPod(pod({ key: 'x/a', labels: 'app=a,extra=1', ips: PODS[0]?.ips ?? [], ports: ['http=80'] })),
      [],
      [],
    ],
    ['a pod is deleted', (one) => one.deletePod('z/c'), ['z/c'], []],
    ['a policy is deleted', (one) => one.deletePolicy('x/deny'), ['x/a', 'x/b'], ['x/deny']],
    [
      'a policy that selects only pods of other nodes is created',
      (one) => one.setPolicy(policy('more', { podSelector: ALL }, 'z')),
      [],
      [],
    ],
  ];
  for (const [what, change, pods, policies] of rows) {
    test(what, () => {
      const one = table();
      one.commit();
      change(one);
      const dirty = one.commit();
      assert.deepEqual([[...dirty.pods].sort(), [...dirty.policies].sort()], [pods, policies]);
    });
  }
});

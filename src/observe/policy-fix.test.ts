import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from 'yaml';
import type { NetworkPolicy } from '../kube/types.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { ask, PODS, pod, view } from './testing/explain-scene.ts';

const BARE = pod('bare', '10.244.1.20', 'node-1', { labels: { 'pod-template-hash': 'x' } });
const LABELS = { app: 'web' };

const ingress = (...rules: object[]): NetworkPolicy => ({
  metadata: { namespace: 'shop', name: 'guard' },
  spec: { podSelector: { matchLabels: LABELS }, policyTypes: ['Ingress'], ingress: rules },
});
const from = (matchLabels: Record<string, string>, ...ports: number[]) => ({
  from: [{ podSelector: { matchLabels } }],
  ...(ports.length > 0 ? { ports: ports.map((port) => ({ port })) } : {}),
});

/** The client has the label app=client; the Service's pods listen on port 8080. */
const ROWS: readonly [name: string, client: string, policy: NetworkPolicy, fix: RegExp][] = [
  [
    'a label that a rule admits, which the client has not',
    'shop/client-1',
    ingress(from({ role: 'friend' })),
    /^give pod shop\/client-1 the label role=friend, which spec\.ingress\[0\] of NetworkPolicy shop\/guard allows: kubectl -n shop label pod client-1 role=friend/,
  ],
  [
    'another value of a label that the client has is not proposed',
    'shop/client-1',
    ingress(from({ app: 'other' })),
    /^add to spec\.ingress of it: - \{from: \[\{podSelector: \{matchLabels: \{app: client\}\}\}\], ports: \[\{protocol: TCP, port: 8080\}\]\}$/,
  ],
  [
    'a rule for the client without the port',
    'shop/client-1',
    ingress(from({ app: 'client' }, 9090)),
    /^add a port to spec\.ingress\[0\] of NetworkPolicy shop\/guard: \{protocol: TCP, port: 8080\}$/,
  ],
  ['no rules', 'shop/client-1', ingress(), /^add to spec\.ingress of it: - \{from: \[\{podSelector/],
  [
    'a client without labels of its own',
    'shop/bare',
    ingress(),
    /^label the pod first \(kubectl -n shop label pod bare app=bare\), and add to spec\.ingress of it: - \{from: \[\{podSelector: \{matchLabels: \{app: bare\}\}\}\]/,
  ],
  [
    'a node',
    'node/node-2',
    ingress(),
    /^add to spec\.ingress of it: - \{from: \[\{ipBlock: \{cidr: "192\.168\.0\.2\/32"\}\}\]/,
  ],
];

for (const [name, client, policy, fix] of ROWS)
  test(`the smallest change of policies: ${name}`, () => {
    const pods = [...PODS, BARE];
    const table = createPolicyTable('node-1');
    for (const one of pods) table.setPod(one);
    table.setPolicy(policy);
    const scene = view({ policies: () => table, pods: () => pods });
    const { causes } = ask(scene, client, client.startsWith('node/') ? '10.244.1.2:8080' : 'svc/shop/web:80');
    const text = causes.find((cause) => cause.object === 'NetworkPolicy shop/guard')?.fix ?? '';
    assert.match(text, fix);
    // Text for pasting is YAML.
    const [, yaml] = /: (- \{.*\})$/.exec(text) ?? [];
    if (yaml !== undefined) assert.ok(Array.isArray(parse(yaml)), yaml);
  });

test('the smallest change of policies: a name server is asked over UDP and TCP', () => {
  const table = createPolicyTable('node-1');
  for (const one of PODS) table.setPod(one);
  table.setPolicy({
    metadata: { namespace: 'shop', name: 'guard' },
    spec: { podSelector: { matchLabels: { app: 'client' } }, policyTypes: ['Egress'], egress: [] },
  });
  const scene = view({ policies: () => table });
  const { causes } = ask(scene, 'shop/client-1', '10.244.1.2:53/UDP');
  const fix = causes.find((cause) => cause.object === 'NetworkPolicy shop/guard')?.fix ?? '';
  assert.match(fix, /ports: \[\{protocol: UDP, port: 53\}, \{protocol: TCP, port: 53\}\]/);
});

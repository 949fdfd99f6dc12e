import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { allows } from './allows.ts';
import { readPod } from './pod-reader.ts';
import { createPolicyTable } from './policy-table.ts';
import {
  ALL,
  fill,
  NAMESPACES,
  PODS,
  POLICY_ROWS,
  pod,
  policy,
  withLabels,
} from './testing/policy-objects.ts';
import { randomPolicies } from './testing/random-policies.ts';
import { whoCan } from './who-can.ts';

const pods = PODS.flatMap((one) => readPod(pod(one)) ?? []);

function reach(
  policies: Parameters<typeof fill>[1]['policies'],
  key: string,
  port: number,
  clusterPolicies?: Parameters<typeof fill>[1]['clusterPolicies'],
) {
  const table = createPolicyTable('node-1');
  fill(table, { namespaces: NAMESPACES, pods: PODS.map(pod), policies, clusterPolicies });
  const target = pods.find((one) => one.key === key);
  assert.ok(target);
  return { table, target, found: whoCan(table, pods, { pod: target, port, protocol: 'TCP' }) };
}

test('a pod that no policy isolates is reachable by all', () => {
  const { found } = reach([], 'x/b', 80);
  assert.deepEqual(found.isolatedBy, []);
  assert.deepEqual(found.allowed, ['x/a', 'y/a', 'z/c']);
});

test('lists rules for the port with their peers', () => {
  const { found } = reach(
    [
      policy('p', {
        podSelector: withLabels('app=b'),
        policyTypes: ['Ingress'],
        ingress: [
          { from: [{ podSelector: withLabels('app=a') }], ports: [{ port: 'http' }] },
          { from: [{ namespaceSelector: withLabels('team=red') }], ports: [{ port: 81 }] },
          { from: [{ ipBlock: { cidr: '10.0.0.0/8', except: ['10.244.0.0/16'] } }] },
          { ports: [{ protocol: 'UDP', port: 80 }] },
        ],
      }),
    ],
    'x/b',
    80,
  );
  assert.deepEqual(found.admissions, [
    {
      policy: 'x/p',
      action: 'Accept',
      field: 'spec.ingress[0].from[0]',
      peer: 'pods with app=a in namespace x',
      pods: ['x/a'],
    },
    {
      policy: 'x/p',
      action: 'Accept',
      field: 'spec.ingress[2].from[0]',
      peer: '10.0.0.0/8 except 10.244.0.0/16',
      pods: null,
    },
  ]);
  assert.deepEqual(found.allowed, ['x/a']);
});

test('a sender denied by its own policies is listed separately', () => {
  const { found } = reach([policy('out', { podSelector: ALL, policyTypes: ['Egress'] })], 'x/b', 80);
  assert.deepEqual(found.allowed, ['y/a', 'z/c']);
  assert.deepEqual(found.deniedBySender, [{ pod: 'x/a', policies: ['x/out'] }]);
});

describe('the listed pods are those that the oracle admits', () => {
  const places = PODS.map(({ key }) => key);
  const rows = [
    ...POLICY_ROWS.map(({ name, policies, clusterPolicies }) => [name, policies, clusterPolicies] as const),
    ...[1, 2, 3, 4, 5].map(
      (seed) => [`seed ${seed}`, randomPolicies(seed, places).policies, undefined] as const,
    ),
  ];
  for (const [name, policies, clusterPolicies] of rows) {
    test(name, () => {
      for (const { key } of PODS) {
        const { table, target, found } = reach(policies, key, 81, clusterPolicies);
        const expected = pods.filter(({ key: sender, addresses: [source = ''] }) => {
          const packet = {
            source,
            destination: target.addresses[0] ?? '',
            port: 81,
            protocol: 'TCP',
          } as const;
          return sender !== key && allows(table, packet).isAllowed;
        });
        assert.deepEqual(
          found.allowed,
          expected.map((one) => one.key),
        );
        // This pod allows each pod that a rule's peer selects; only the sender's policies remain.
        const admitted = new Set([...found.allowed, ...found.deniedBySender.map((one) => one.pod)]);
        if (clusterPolicies) continue;
        for (const { pods: selected } of found.admissions) {
          for (const one of selected ?? []) assert.ok(one === key || admitted.has(one), `${one} → ${key}`);
        }
      }
    });
  }
});

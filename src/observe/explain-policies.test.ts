import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { NetworkPolicy } from '../kube/types.ts';
import { readClusterPolicy } from '../policy/cluster-policy-reader.ts';
import { createPolicyTable } from '../policy/policy-table.ts';
import { renderExplanation } from './explain-text.ts';
import { ask, PODS, view } from './testing/explain-scene.ts';

describe('network policies', () => {
  const rules = (from: object) => [{ from: [{ podSelector: from }], ports: [{ port: 8080 }] }];
  const admits = (from: object): NetworkPolicy => ({
    metadata: { namespace: 'shop', name: 'web-only' },
    spec: { podSelector: { matchLabels: { app: 'web' } }, policyTypes: ['Ingress'], ingress: rules(from) },
  });
  const admitsNetwork = (cidr: string): NetworkPolicy => ({
    ...admits({}),
    spec: { ...admits({}).spec, podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr } }] }] },
  });
  const silent: NetworkPolicy = {
    metadata: { namespace: 'shop', name: 'silent' },
    spec: { podSelector: {}, policyTypes: ['Egress'] },
  };
  const policyRows: [what: string, policies: NetworkPolicy[], verdict: string, ...says: RegExp[]][] = [
    [
      'the rule that allows it is named',
      [admits({})],
      'delivered',
      /NetworkPolicy shop\/web-only allows ingress to shop\/web-1 on port 8080\/TCP/,
      /spec\.ingress\[0\]\.from\[0\]/,
    ],
    [
      'the policy that denies it is named, with the rule that would allow it',
      [admits({ matchLabels: { app: 'other' } })],
      'dropped',
      /no rule of NetworkPolicy shop\/web-only allows ingress to shop\/web-1/,
      /denied by network policies/,
      /fix add to spec\.ingress of it: - \{from: \[\{podSelector: \{matchLabels: \{app: client\}\}\}\]/,
    ],
    [
      'denied egress, with allowed ingress',
      [admits({}), silent],
      'dropped',
      /no rule of NetworkPolicy shop\/silent allows egress from shop\/client-1/,
      /isolates pod shop\/client-1 for egress/,
    ],
  ];
  const named = (names: string): NetworkPolicy => ({
    metadata: { ...silent.metadata, annotations: { 'fairlead.dev/egress-names': names } },
    spec: { podSelector: {}, policyTypes: ['Egress'] },
  });
  const cluster = (tier: 'Admin' | 'Baseline', action: string) => ({
    kind: 'ClusterNetworkPolicy' as const,
    object: {
      metadata: { name: 'guard' },
      spec: {
        tier,
        priority: 1,
        subject: { namespaces: {} },
        ingress: [{ action, from: [{ namespaces: {} }] }],
      },
    },
  });
  const clusterRows: [
    what: string,
    policy: ReturnType<typeof cluster>,
    verdict: string,
    ...says: RegExp[],
  ][] = [
    [
      'a policy of the whole cluster that allows it is named with its tier',
      cluster('Admin', 'Accept'),
      'delivered',
      /ClusterNetworkPolicy guard \(tier Admin\) allows ingress to shop\/web-1 on port 8080\/TCP/,
      /spec\.ingress\[0\]\.from\[0\]/,
    ],
    [
      'a policy of the Admin tier that denies it is named, with the change that would allow it',
      cluster('Admin', 'Deny'),
      'dropped',
      /ClusterNetworkPolicy guard \(tier Admin\) denies ingress to shop\/web-1/,
      /fix add a rule with the action Accept or Pass before it: from namespaceSelector/,
    ],
    [
      'a policy of the Baseline tier that denies it is named, with the change that would allow it',
      cluster('Baseline', 'Deny'),
      'dropped',
      /ClusterNetworkPolicy guard \(tier Baseline\) denies ingress to shop\/web-1/,
      /fix create a NetworkPolicy that selects the pod, with a rule from namespaceSelector/,
    ],
  ];
  for (const [what, { kind, object }, verdict, ...says] of clusterRows) {
    test(what, () => {
      const table = createPolicyTable('node-1');
      table.setNamespace({ metadata: { name: 'shop' } });
      for (const one of PODS) table.setPod(one);
      table.setClusterPolicy(readClusterPolicy(kind, object).policy);
      const explanation = ask(view({ policies: () => table }), 'shop/client-1', 'svc/shop/web:80');
      assert.equal(explanation.verdict, verdict);
      const text = renderExplanation(explanation);
      for (const pattern of says) assert.match(text, pattern);
    });
  }
  for (const [what, policies, verdict, ...says] of policyRows) {
    test(what, () => {
      const table = createPolicyTable('node-1');
      for (const one of PODS) table.setPod(one);
      for (const one of policies) table.setPolicy(one);
      const explanation = ask(view({ policies: () => table }), 'shop/client-1', 'svc/shop/web:80');
      assert.equal(explanation.verdict, verdict);
      let text = renderExplanation(explanation);
      for (const pattern of says) {
        assert.match(text, pattern);
        text = text.slice(text.search(pattern));
      }
    });
  }
  for (const [what, isLearned, verdict, says] of [
    [
      'the rule with names is named, with the name and the time',
      true,
      'rejected',
      /NetworkPolicy shop\/silent allows egress from shop\/client-1 on port 443\/TCP: the cluster's DNS gave the pod 198\.51\.100\.7 for api\.example\.com, and it may connect until \d\d:\d\d:\d\d[\s\S]*egress-names/,
    ],
    [
      'an address that the pod did not ask for is denied with that cause',
      false,
      'dropped',
      /the name was not asked for through the cluster's DNS, or its time has ended[\s\S]*\(\*\.example\.org, api\.example\.com\)/,
    ],
  ] as const) {
    test(what, () => {
      const learned = { name: 'api.example.com', until: Date.now() + 30_000 };
      const table = createPolicyTable('node-1', () => (isLearned ? learned : null));
      for (const one of PODS) table.setPod(one);
      table.setPolicy(named('api.example.com:443, *.example.org:443, other.example:80'));
      const explanation = ask(view({ policies: () => table }), 'shop/client-1', '198.51.100.7:443');
      assert.match(renderExplanation(explanation), says);
      // The scene has no route to it.
      assert.equal(explanation.verdict, verdict);
    });
  }
  const fromOutside: [what: string, from: string, network: string, verdict: string, says: RegExp][] = [
    [
      'any client outside that an ipBlock does not allow',
      'outside',
      '198.51.100.0/24',
      'dropped',
      /no rule of/,
    ],
    [
      'a client outside that an ipBlock allows',
      'outside@198.51.100.9',
      '198.51.100.0/24',
      'delivered',
      /web-only allows ingress to shop\/web-2/,
    ],
    [
      'a client outside that no ipBlock allows',
      'outside@192.0.2.9',
      '198.51.100.0/24',
      'dropped',
      /no rule of/,
    ],
  ];
  for (const [what, from, network, verdict, says] of fromOutside) {
    test(what, () => {
      const table = createPolicyTable('node-1');
      for (const one of PODS) table.setPod(one);
      table.setPolicy(admitsNetwork(network));
      const scene = view({ policies: () => table, hosts: [], entryNode: () => null });
      const explanation = ask(scene, from, '203.0.113.2:80');
      assert.equal(explanation.verdict, verdict);
      assert.match(renderExplanation(explanation), says);
    });
  }
});

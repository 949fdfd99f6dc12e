import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './configuration.ts';
import { loadBalancerPools } from './load-balancer-pools.ts';

const read = (pools: unknown) =>
  readConfiguration({
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'AgentConfiguration',
    nodeName: 'node-1',
    loadBalancer: { pools },
  }).loadBalancer?.pools ?? {};

test('a pool is a list of addresses, or an object with MetalLB\u2019s fields', () => {
  const selector = { matchLabels: { app: 'web' }, matchExpressions: [{ key: 'tier', operator: 'Exists' }] };
  const pools = loadBalancerPools(
    read({
      public: ['192.0.2.0/28'],
      vip: {
        addresses: ['192.0.2.77'],
        autoAssign: false,
        serviceAllocation: { priority: 5, namespaces: ['prod'], serviceSelectors: [selector] },
      },
    }),
  );
  assert.deepEqual(
    pools.map(({ name, ranges, autoAssign, priority, namespaces }) => [
      name,
      ranges,
      autoAssign,
      priority,
      namespaces,
    ]),
    [
      ['public', ['192.0.2.0/28'], true, 0, []],
      ['vip', ['192.0.2.77'], false, 5, ['prod']],
    ],
  );
  assert.deepEqual(pools[1]?.serviceSelectors, [
    { matchLabels: { app: 'web' }, matchExpressions: [{ key: 'tier', operator: 'Exists', values: [] }] },
  ]);
});

const WRONG: readonly [what: string, pools: unknown, message: RegExp][] = [
  ['a range', { a: ['192.0.2.9-192.0.2.1'] }, /pools\.a\.addresses\[0\]: .* is not a network/],
  ['a field that does not exist', { a: { ranges: [] } }, /pools\.a\.ranges: unknown field/],
  ['avoidBuggyIPs', { a: { addresses: [], avoidBuggyIPs: true } }, /avoidBuggyIPs: unknown field/],
  [
    'an operator',
    {
      a: { serviceAllocation: { serviceSelectors: [{ matchExpressions: [{ key: 'x', operator: 'Is' }] }] } },
    },
    /matchExpressions\[0\]\.operator: must be one of In, NotIn, Exists, DoesNotExist/,
  ],
  [
    'a label',
    { a: { serviceAllocation: { serviceSelectors: [{ matchLabels: { x: 1 } }] } } },
    /x: must be a string/,
  ],
  ['a string', 'all', /pools: must be an object/],
];
for (const [what, pools, message] of WRONG) {
  test(`an invalid value is rejected with its path: ${what}`, () => {
    assert.throws(() => read(pools), message);
  });
}

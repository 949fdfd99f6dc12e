import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parsePools, poolsText } from './load-balancer-pools.ts';

const NAMED = {
  shop: {
    addresses: ['192.0.2.0/28'],
    serviceAllocation: {
      priority: 5,
      namespaces: ['shop'],
      serviceSelectors: [{ matchLabels: { tier: 'a' } }],
    },
  },
  vip: { addresses: ['192.0.2.77', 'fd00::/124'], autoAssign: false },
};

test('addresses without a name are the pool "default"', () => {
  assert.deepEqual(parsePools('192.0.2.0/28,192.0.2.20-192.0.2.29'), [
    { name: 'default', ranges: ['192.0.2.0/28', '192.0.2.20-192.0.2.29'] },
  ]);
});

test('named pools have selectors, priority and autoAssign, as in the configuration of the agent', () => {
  const [shop, vip] = parsePools(JSON.stringify(NAMED));
  assert.deepEqual(
    [shop?.name, shop?.priority, shop?.namespaces, shop?.serviceSelectors, shop?.autoAssign],
    ['shop', 5, ['shop'], [{ matchLabels: { tier: 'a' }, matchExpressions: [] }], true],
  );
  assert.deepEqual([vip?.name, vip?.ranges, vip?.autoAssign], ['vip', NAMED.vip.addresses, false]);
});

for (const text of ['192.0.2.0/28,fd00::/124', JSON.stringify(NAMED), '{"default":["192.0.2.0/28"]}']) {
  test(`equal pools have equal texts: ${text}`, () => {
    const normal = poolsText(parsePools(text));
    assert.equal(poolsText(parsePools(normal)), normal);
  });
}

for (const [what, text, message] of [
  ['a range', '192.0.2.9-192.0.2.1', /--lb-pool: "192\.0\.2\.9-192\.0\.2\.1" is not a network/],
  ['JSON', '{"a": [', /--lb-pool: is not JSON/],
  ['a field', '{"a": {"ranges": []}}', /lb-pool\.a\.ranges: unknown field/],
  [
    'a selector',
    '{"a": {"serviceAllocation": {"namespaces": "shop"}}}',
    /lb-pool\.a\.serviceAllocation\.namespaces/,
  ],
] as const)
  test(`a wrong value is refused: ${what}`, () => assert.throws(() => parsePools(text), { message }));

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ServiceCidr } from '../kube/types.ts';
import { reconcileServiceCidr } from './service-cidrs.ts';
import { NOW, secondsAgo } from './testing/objects.ts';

const FINALIZER = 'networking.k8s.io/service-cidr-finalizer';
const cidr = (name: string, range: string, going = false): ServiceCidr => ({
  metadata: { name, finalizers: [FINALIZER], ...(going ? { deletionTimestamp: secondsAgo(1) } : {}) },
  spec: { cidrs: [range] },
});
const ROWS: readonly [
  name: string,
  cidr: ServiceCidr,
  others: ServiceCidr[],
  addresses: string[],
  ready: string,
  kept: boolean,
][] = [
  ['is ready', cidr('a', '10.1.0.0/24'), [], [], 'True', true],
  [
    'is protected by the finalizer',
    { metadata: { name: 'a' }, spec: { cidrs: ['10.1.0.0/24'] } },
    [],
    [],
    'True',
    true,
  ],
  ['is removed when no address remains', cidr('a', '10.1.0.0/24', true), [], ['10.2.0.1'], 'False', false],
  ['waits for its addresses', cidr('a', '10.1.0.0/24', true), [], ['10.1.0.7'], 'False', true],
  [
    'is removed when another contains its addresses',
    cidr('a', '10.1.0.0/24', true),
    [cidr('b', '10.1.0.0/16')],
    ['10.1.0.7'],
    'False',
    false,
  ],
  [
    'waits if the other is being deleted too',
    cidr('a', 'fd00::/120', true),
    [cidr('b', 'fd00::/112', true)],
    ['fd00::7'],
    'False',
    true,
  ],
];
for (const [name, object, others, addresses, ready, kept] of ROWS) {
  test(`a ServiceCIDR ${name}`, () => {
    const plan = reconcileServiceCidr(object, others, addresses, NOW);
    assert.equal(plan.conditions[0]?.status, ready);
    assert.equal(plan.finalizers.includes(FINALIZER), kept);
  });
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLater } from '../kube/resource-version.ts';
import type { EndpointSlice } from '../kube/types.ts';
import { manualClock } from '../lib/clock.ts';
import type { Traffic } from '../runtime/traffic-end.ts';
import { createEndpointTraffic } from './endpoint-traffic.ts';

const POD = ['10.244.1.2', 'fd00:1::2'];
const MANAGED = { 'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io' };
const HEADLESS = { ...MANAGED, 'service.kubernetes.io/headless': '' };
const READY = { ready: true, serving: true, terminating: false };
const LEAVING = { ready: false, serving: true, terminating: true };

const slice = (version: string, conditions: object, labels: object = MANAGED, address = '10.244.1.2') =>
  ({
    metadata: { resourceVersion: version, labels },
    endpoints: [{ addresses: [address], conditions }],
  }) as unknown as EndpointSlice;

const ROWS: readonly [what: string, slices: EndpointSlice[], programmed: string, expected: Traffic][] = [
  ['no slice lists it', [slice('7', READY, MANAGED, '10.244.1.20')], '9', 'none'],
  ['a slice lists it as ready', [slice('7', READY)], '9', 'new'],
  ['by its IPv6 address', [slice('7', READY, MANAGED, 'fd00:1::2')], '9', 'new'],
  ['a slice lists it that no controller changes', [slice('7', READY, {})], '9', 'kept'],
  ['it terminates, and all nodes know', [slice('7', LEAVING)], '7', 'ending'],
  ['it terminates, and a node does not know', [slice('7', LEAVING)], '6', 'programming'],
  ['it terminates in one of two slices', [slice('7', LEAVING), slice('8', READY)], '9', 'new'],
  ['a node knows of one of two slices', [slice('7', LEAVING), slice('10', LEAVING)], '9', 'programming'],
  ['only a headless Service has it, which no node forwards', [slice('7', LEAVING, HEADLESS)], '6', 'ending'],
  [
    'all addresses count as ready even if it terminates',
    [slice('7', { ...READY, terminating: true })],
    '7',
    'ending',
  ],
];
for (const [what, slices, programmed, expected] of ROWS)
  test(`the traffic to a pod is "${expected}" if ${what}`, () => {
    assert.equal(
      trafficOf(
        () => slices,
        () => programmed,
      )(POD),
      expected,
    );
  });

test('later changes of a slice are not waited for', () => {
  let slices = [slice('7', LEAVING)];
  let programmed = '6';
  const traffic = trafficOf(
    () => slices,
    () => programmed,
  );
  assert.equal(traffic(POD), 'programming');
  slices = [slice('100', LEAVING)];
  programmed = '7';
  assert.equal(traffic(POD), 'ending');
});

function trafficOf(list: () => EndpointSlice[], programmed: () => string) {
  const nodes = { have: (version: string) => !isLater(version, programmed()) };
  return createEndpointTraffic({ slices: { list }, nodes, clock: manualClock() });
}

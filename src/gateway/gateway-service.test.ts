import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Service } from '../kube/types.ts';
import {
  gatewayOf,
  plannedService,
  plannedSlices,
  readyPorts,
  serviceNameOf,
  usedNodePorts,
} from './gateway-service.ts';
import { httpMap, listener } from './testing/maps.ts';

const [plan] = httpMap([listener('', [])]).gateways;
assert.ok(plan);
const node = (name: string, address: string, ports: string, ready = 'True'): Node => ({
  metadata: { name, annotations: { 'fairlead.dev/gateway-ports': ports } },
  status: { addresses: [{ type: 'InternalIP', address }], conditions: [{ type: 'Ready', status: ready }] },
});

test('names of Services are unique, and only those of the namespace stand for a gateway', () => {
  assert.equal(serviceNameOf('ingress/fairlead'), 'ingress-fairlead');
  assert.notEqual(serviceNameOf('gateway/a/b-c'), serviceNameOf('gateway/a-b/c'));
  const service = plannedService(plan, undefined, new Set());
  assert.equal(gatewayOf(service), 'ingress/fairlead');
  assert.equal(gatewayOf({ ...service, metadata: { ...service.metadata, namespace: 'default' } }), null);
  assert.equal(gatewayOf({ ...service, metadata: { ...service.metadata, name: 'other' } }), null);
});

test('ports of nodes are allocated once, and kept', () => {
  const used = new Set([27_000]);
  const service = plannedService(plan, undefined, used);
  assert.deepEqual(
    service.spec?.ports?.map(({ port, targetPort }) => [port, targetPort]),
    [[80, 27_001]],
  );
  assert.deepEqual(plannedService(plan, service, used).spec?.ports, service.spec?.ports);
  assert.deepEqual([...usedNodePorts([service])], [27_001]);
});

test('endpoints are the own addresses of nodes that report the port and are ready', () => {
  const planned = plannedService(plan, undefined, new Set());
  const service: Service = { ...planned, spec: { ...planned.spec, ipFamilies: ['IPv4'] } };
  const [slice] = plannedSlices(service, [
    node('b', '10.0.0.2', '27000,27001'),
    node('a', '10.0.0.1', '27000'),
    node('c', '10.0.0.3', ''),
    node('d', '10.0.0.4', '27000', 'Unknown'),
  ]);
  assert.deepEqual(
    slice?.endpoints?.map(({ addresses, nodeName }) => [nodeName, addresses[0]]),
    [
      ['a', '10.0.0.1'],
      ['b', '10.0.0.2'],
    ],
  );
});

test('what a node reports is bounded', () => {
  assert.deepEqual([...readyPorts(node('a', '10.0.0.1', '27000,80,x,-1,99999'))], [27_000]);
  assert.ok(readyPorts(node('a', '10.0.0.1', '27000,'.repeat(1_000_000))).size <= 1000);
});

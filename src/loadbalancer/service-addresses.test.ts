import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Service } from '../kube/types.ts';
import { createServiceAddresses, releasedStatus, type ServiceAddresses } from './service-addresses.ts';

const NOW = Date.UTC(2026, 0, 1);

function service(name: string, status: Service['status'] = {}, created = '2026-01-01T00:00:00Z'): Service {
  return {
    metadata: { name, namespace: 'default', creationTimestamp: created },
    spec: { type: 'LoadBalancer', ipFamilies: ['IPv4'], ports: [{ port: 80 }] },
    status,
  };
}

const node = (address: string, ready = 'True') =>
  ({
    status: { addresses: [{ type: 'InternalIP', address }], conditions: [{ type: 'Ready', status: ready }] },
  }) as Node;

const open = (ranges = ['10.0.0.1-10.0.0.2']): ServiceAddresses =>
  createServiceAddresses({ pools: [{ name: 'default', ranges }], namespaceLabels: () => ({}) });

const reasons = ({ conditions }: NonNullable<Service['status']>) => conditions?.map(({ reason }) => reason);

const ROWS: Readonly<Record<string, (addresses: ServiceAddresses) => void>> = {
  'an assigned Service gets an address, two conditions and one event'(addresses) {
    const { status, events } = addresses.assign(service('a'), NOW);
    assert.deepEqual(status.loadBalancer?.ingress, [{ ip: '10.0.0.1', ipMode: 'VIP' }]);
    assert.deepEqual(reasons(status), ['Allocated', 'NoNodeAnnounces']);
    assert.deepEqual(events, [
      { type: 'Normal', reason: 'AddressAllocated', message: '10.0.0.1 from pool default' },
    ]);
  },
  'a second assignment with the written status reports no event again'(addresses) {
    const { status } = addresses.assign(service('a'), NOW);
    const again = addresses.assign(service('a', status), NOW + 1000);
    assert.deepEqual(again.status, status);
    assert.deepEqual(again.events, []);
  },
  'an address counts as announced while its node is ready'(addresses) {
    addresses.assign(service('a'), NOW);
    addresses.setNode('node-1', node('192.0.2.1'));
    assert.deepEqual(addresses.setAnnouncer('10.0.0.1', 'node-1'), ['default/a']);
    assert.deepEqual(addresses.setAnnouncer('10.0.0.1', 'node-1'), []);
    assert.deepEqual(reasons(addresses.assign(service('a'), NOW).status), ['Allocated', 'Announced']);
    assert.deepEqual(addresses.setNode('node-1', node('192.0.2.1', 'False')), ['default/a']);
    assert.deepEqual(reasons(addresses.assign(service('a'), NOW).status), ['Allocated', 'NoNodeAnnounces']);
  },
  'a Service without an address is assigned again when one becomes free'(addresses) {
    for (const name of ['a', 'b']) addresses.assign(service(name), NOW);
    const refused = addresses.assign(service('c'), NOW);
    assert.deepEqual(
      refused.events.map(({ reason }) => reason),
      ['PoolExhausted'],
    );
    assert.deepEqual(addresses.release('default/a'), ['default/c']);
    assert.deepEqual(addresses.release('default/a'), []);
  },
  'an address that becomes a node’s address is replaced, with the reason'(addresses) {
    const { status } = addresses.assign(service('a'), NOW);
    assert.deepEqual(addresses.setNode('node-1', node('10.0.0.1')), ['default/a']);
    assert.deepEqual(addresses.assign(service('a', status), NOW).events, [
      {
        type: 'Warning',
        reason: 'AddressChanged',
        message: '10.0.0.1 is an address of node node-1; the Service now has 10.0.0.2 from pool default',
      },
    ]);
  },
  'of two Services with the same address the older keeps it'(addresses) {
    const { status } = open().assign(service('x'), NOW);
    const younger = service('a', status, '2026-01-02T00:00:00Z');
    addresses.adopt([younger, service('b', status)]);
    assert.deepEqual(addresses.assign(service('b', status), NOW).addresses, ['10.0.0.1']);
    assert.deepEqual(addresses.assign(younger, NOW).addresses, ['10.0.0.2']);
  },
  'a released Service keeps its other conditions'(addresses) {
    const { status } = addresses.assign(service('a'), NOW);
    const other = { type: 'Ready', status: 'True', reason: 'Ok', message: '', lastTransitionTime: 'then' };
    const before = service('a', { ...status, conditions: [other, ...(status.conditions ?? [])] });
    const released = releasedStatus(before);
    assert.deepEqual(released.status, { conditions: [other], loadBalancer: {} });
    assert.equal(released.event?.reason, 'AddressReleased');
  },
};

for (const [behaviour, check] of Object.entries(ROWS)) test(behaviour, () => check(open()));

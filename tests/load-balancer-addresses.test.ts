import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  ADDRESS_ALLOCATED,
  ADDRESS_ANNOUNCED,
  addressLeaseMetadata,
  REQUESTED_ADDRESSES,
} from '../src/kube/load-balancer.ts';
import type { Transport } from '../src/kube/transport.ts';
import { RESOURCES, type Service } from '../src/kube/types.ts';
import type { LoadBalancerPool } from '../src/loadbalancer/address-pools.ts';
import { type ControlPlane, startControlPlane } from './testing/control-plane.ts';

const FINALIZER = 'service.kubernetes.io/load-balancer-cleanup';
const FIRST: LoadBalancerPool[] = [{ name: 'first', ranges: ['192.0.2.1-192.0.2.3', 'fd00:2::1-fd00:2::3'] }];

describe('addresses of Services of type LoadBalancer', { timeout: 120_000 }, () => {
  const options = { loadBalancerPools: FIRST };
  let plane: ControlPlane;
  before(async () => {
    plane = await startControlPlane(options);
    await plane.addNode('node-1');
  });
  after(() => plane?.close());

  const create = (name: string, spec: Partial<NonNullable<Service['spec']>> = {}, ask?: string) =>
    plane.client.create(RESOURCES.services, {
      metadata: {
        name,
        namespace: 'default',
        ...(ask === undefined ? {} : { annotations: { [REQUESTED_ADDRESSES]: ask } }),
      },
      spec: { type: 'LoadBalancer', ports: [{ port: 80 }], ...spec },
    });
  const find = (name: string) => (services: Service[]) =>
    services.find(({ metadata }) => metadata?.name === name);
  const ips = (service: Service | undefined) =>
    (service?.status?.loadBalancer?.ingress ?? []).map(({ ip, ipMode }) => `${ip} ${ipMode}`);
  const conditionOf = (service: Service | undefined, wanted: string) => {
    const found = service?.status?.conditions?.find(({ type }) => type === wanted);
    return found && `${found.status} ${found.reason}: ${found.message}`;
  };
  const untilAllocated = (name: string, text: string) =>
    plane.until(RESOURCES.services, `${name}: ${text}`, (services) => {
      const service = find(name)(services);
      return conditionOf(service, ADDRESS_ALLOCATED) === text ? service : undefined;
    });
  const untilEvent = (name: string, reason: string) =>
    plane.until(RESOURCES.events, `event ${reason} of ${name}`, (events) =>
      events.find((event) => event.involvedObject.name === name && event.reason === reason),
    );
  const remove = async (name: string) => {
    await plane.client.delete(RESOURCES.services, name, { namespace: 'default' });
    await plane.until(RESOURCES.services, `${name} is gone`, (all) => (find(name)(all) ? undefined : true));
  };

  test('one per family, with ipMode VIP, a finalizer, a condition and an event', async () => {
    await create('a', { ipFamilyPolicy: 'RequireDualStack' });
    const service = await untilAllocated(
      'a',
      'True Allocated: 192.0.2.1 from pool first; fd00:2::1 from pool first',
    );
    assert.deepEqual(ips(service), ['192.0.2.1 VIP', 'fd00:2::1 VIP']);
    await plane.until(RESOURCES.services, 'finalizer', (all) =>
      find('a')(all)?.metadata?.finalizers?.includes(FINALIZER) ? true : undefined,
    );
    const event = await untilEvent('a', 'AddressAllocated');
    assert.equal(event.message, '192.0.2.1 from pool first, fd00:2::1 from pool first');
  });

  test('the condition names the announcing node of each Lease', async () => {
    const until = (text: string) =>
      plane.until(RESOURCES.services, text, (all) =>
        conditionOf(find('a')(all), ADDRESS_ANNOUNCED) === text ? true : undefined,
      );
    await until('False NoNodeAnnounces: 192.0.2.1 by no node; fd00:2::1 by no node');
    for (const address of ['192.0.2.1', 'fd00:2::1']) {
      await plane.client.create(RESOURCES.leases, {
        metadata: addressLeaseMetadata(address),
        spec: { holderIdentity: 'node-1/x' },
      });
    }
    await until('True Announced: 192.0.2.1 by node-1; fd00:2::1 by node-1');
    const { name, namespace } = addressLeaseMetadata('fd00:2::1');
    await plane.client.delete(RESOURCES.leases, name, { namespace });
    await until('False NoNodeAnnounces: 192.0.2.1 by node-1; fd00:2::1 by no node');
  });

  test('a Service of another class is left alone', async () => {
    await create('other', { loadBalancerClass: 'example.com/cloud' });
    await create('b');
    await untilAllocated('b', 'True Allocated: 192.0.2.2 from pool first');
    const other = await plane.client.get(RESOURCES.services, 'other', 'default');
    assert.deepEqual(
      [ips(other), other.status?.conditions, other.metadata?.finalizers],
      [[], undefined, undefined],
    );
    await remove('other');
  });

  test('an address in use is rejected with an event that names its Service', async () => {
    await create('c', {}, '192.0.2.2');
    await untilAllocated('c', 'False AddressTaken: 192.0.2.2 is in use by Service default/b');
    const event = await untilEvent('c', 'AddressTaken');
    assert.deepEqual([event.type, event.message], ['Warning', '192.0.2.2 is in use by Service default/b']);
  });

  test('it is assigned as soon as the other Service is deleted', async () => {
    await remove('b');
    await untilAllocated('c', 'True Allocated: 192.0.2.2 from pool first');
  });

  test('an exhausted pool is reported, and a type change frees an address for a waiting Service', async () => {
    await create('d');
    await untilAllocated('d', 'True Allocated: 192.0.2.3 from pool first');
    await create('e');
    const message = 'every IPv4 address is in use (first: 192.0.2.1-192.0.2.3)';
    await untilAllocated('e', `False PoolExhausted: ${message}`);
    assert.equal((await untilEvent('e', 'PoolExhausted')).message, message);
    await plane.client.patch(
      RESOURCES.services,
      'd',
      'merge',
      { spec: { type: 'ClusterIP' } },
      { namespace: 'default' },
    );
    await untilAllocated('e', 'True Allocated: 192.0.2.3 from pool first');
    const changed = await plane.until(RESOURCES.services, 'd is clean', (all) => {
      const service = find('d')(all);
      return service?.status?.conditions?.length || service?.metadata?.finalizers?.length
        ? undefined
        : service;
    });
    assert.deepEqual(ips(changed), []);
  });

  test('a restart changes nothing', async () => {
    const before = (await plane.client.list(RESOURCES.services)).items.map((service) => ips(service));
    await plane.restartControllers();
    await create('late');
    await untilAllocated(
      'late',
      'False PoolExhausted: every IPv4 address is in use (first: 192.0.2.1-192.0.2.3)',
    );
    await remove('late');
    assert.deepEqual(
      (await plane.client.list(RESOURCES.services)).items.map((service) => ips(service)),
      before,
    );
  });

  test('addresses removed from the pools are replaced, with an event', async () => {
    options.loadBalancerPools = [{ name: 'second', ranges: ['192.0.2.3-192.0.2.9', 'fd00:2::/64'] }];
    await plane.restartControllers();
    await untilAllocated('a', 'True Allocated: 192.0.2.4 from pool second; fd00:2::1 from pool second');
    const event = await untilEvent('a', 'AddressChanged');
    assert.equal(
      event.message,
      '192.0.2.1 is no longer in any pool; the Service now has 192.0.2.4 from pool second',
    );
    await untilAllocated('e', 'True Allocated: 192.0.2.3 from pool second');
    // The requested address is in no pool: the Service gets none rather than another one.
    await untilAllocated(
      'c',
      'False AddressNotInPool: 192.0.2.2 is not in the pools for this Service (second: 192.0.2.3-192.0.2.9)',
    );
  });

  test('500 Services created at once: no duplicate addresses', async () => {
    options.loadBalancerPools = [
      { name: 'big', ranges: ['198.51.100.0/24', '203.0.113.0/24', '192.0.2.0/24'] },
    ];
    await plane.restartControllers();
    await Promise.all(
      Array.from({ length: 500 }, (_, i) => create(`many-${i}`, { allocateLoadBalancerNodePorts: false })),
    );
    const all = await plane.until(RESOURCES.services, 'all have one', (services) => {
      const many = services.filter(({ metadata }) => metadata?.name?.startsWith('many-'));
      return many.length === 500 && many.every((service) => ips(service).length === 1) ? services : undefined;
    });
    const addresses = all.flatMap((service) => ips(service));
    assert.equal(new Set(addresses).size, addresses.length);
    assert.deepEqual(plane.complaints, []);
  });
});

/** One write of the controllers to a Service, as the reader of the API sees the Service after it. */
type Write = 'condition' | 'finalizer' | 'address';

/** Fails the write of this kind, as if the controllers ended before it; null: none. */
const CRASHES: { before: Write; wanted: Write[] }[] = [
  { before: 'finalizer', wanted: ['condition'] },
  { before: 'address', wanted: ['condition', 'finalizer'] },
];

describe('the order of writes to a Service', { timeout: 120_000 }, () => {
  const writes: Write[] = [];
  let failing: Write | null = null;
  let plane: ControlPlane;
  const disturb = (transport: Transport): Transport => {
    return async (request) => {
      const write = /^\/api\/v1\/namespaces\/default\/services\/ordered/.test(request.path)
        ? writeOf(String(request.body ?? ''))
        : null;
      if (write === null || !['PUT', 'PATCH'].includes(request.method)) return transport(request);
      if (write === failing) throw new Error('the connection was lost');
      writes.push(write);
      return transport(request);
    };
  };
  before(async () => {
    plane = await startControlPlane({ loadBalancerPools: FIRST, disturb });
  });
  after(() => plane?.close());

  const create = () =>
    plane.client.create(RESOURCES.services, {
      metadata: { name: 'ordered', namespace: 'default' },
      spec: { type: 'LoadBalancer', ports: [{ port: 80 }] },
    });
  const untilGone = () =>
    plane.until(RESOURCES.services, 'the Service is gone', (all) =>
      all.some(({ metadata }) => metadata?.name === 'ordered') ? undefined : true,
    );

  test('the finalizer comes before the address', async () => {
    await create();
    await plane.until(RESOURCES.services, 'an address', (all) =>
      all.some(({ status }) => status?.loadBalancer?.ingress?.length) ? true : undefined,
    );
    assert.deepEqual(writes, ['condition', 'finalizer', 'address']);
    await plane.client.delete(RESOURCES.services, 'ordered', { namespace: 'default' });
    await untilGone();
  });

  for (const { before, wanted } of CRASHES) {
    test(`a Service whose controllers ended before its ${before} can be deleted`, async () => {
      writes.length = 0;
      failing = before;
      await create();
      const last = wanted.at(-1);
      await plane.until(RESOURCES.services, `written: ${last}`, (all) =>
        all.some((one) => stateOf(one) === last) ? true : undefined,
      );
      assert.deepEqual(writes, wanted);
      await plane.client.delete(RESOURCES.services, 'ordered', { namespace: 'default' });
      await plane.restartControllers();
      await untilGone();
      failing = null;
    });
  }
});

function stateOf({ metadata, status }: Service): Write | null {
  if (status?.loadBalancer?.ingress?.length) return 'address';
  if (metadata?.finalizers?.includes(FINALIZER)) return 'finalizer';
  return status?.conditions?.some(({ type }) => type === ADDRESS_ALLOCATED) ? 'condition' : null;
}

/** Returns the kind of a write by its body: a patch of metadata, or a whole object with its status. */
function writeOf(body: string): Write | null {
  const object = JSON.parse(body || '{}') as Service;
  if (object.status?.loadBalancer?.ingress?.length) return 'address';
  if (object.status === undefined)
    return object.metadata?.finalizers?.includes(FINALIZER) ? 'finalizer' : null;
  return 'condition';
}

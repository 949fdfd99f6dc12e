import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Handlers } from '../kube/followed-objects.ts';
import { type EndpointSlice, type KubeObject, keyOf, type Service } from '../kube/types.ts';
import { followDnsEndpoints, nameServersOf } from './dns-endpoints.ts';

/** A copy of objects, which a test changes. */
function copyOf<T extends KubeObject>() {
  const objects = new Map<string, T>();
  const handlers: Handlers<T>[] = [];
  return {
    get: (key: string) => objects.get(key),
    list: () => [...objects.values()],
    handle(one: Handlers<T>) {
      handlers.push(one);
      return () => {};
    },
    set(object: T) {
      objects.set(keyOf(object), object);
      for (const one of handlers) one.onAdd?.(object);
    },
    delete(object: T) {
      objects.delete(keyOf(object));
      for (const one of handlers) one.onDelete?.(object);
    },
  };
}

const PORTS = [
  { name: 'dns', port: 53, protocol: 'UDP' },
  { name: 'dns-tcp', port: 53, protocol: 'TCP' },
  { name: 'metrics', port: 9153, protocol: 'TCP' },
];
const service = (name: string, clusterIPs: readonly string[], ports: object[] = PORTS) =>
  ({
    metadata: { namespace: 'kube-system', name },
    spec: { clusterIP: clusterIPs[0], clusterIPs, ports },
  }) as unknown as Service;

type Conditions = Readonly<Record<'ready' | 'serving' | 'terminating', boolean>>;
const READY: Conditions = { ready: true, serving: true, terminating: false };
const ENDING: Conditions = { ready: false, serving: true, terminating: true };
const slice = (
  of: string,
  endpoints: readonly (readonly [address: string, node: string, conditions?: Conditions])[],
  ports: object[] = PORTS,
) =>
  ({
    metadata: {
      namespace: 'kube-system',
      name: `${of}-1`,
      labels: { 'kubernetes.io/service-name': of },
    },
    addressType: 'IPv4',
    ports,
    endpoints: endpoints.map(([address, nodeName, conditions = READY]) => ({
      addresses: [address],
      nodeName,
      conditions,
    })),
  }) as unknown as EndpointSlice;

const BOTH = { UDP: 53, TCP: 53 };
const rows: {
  readonly what: string;
  readonly service?: Service;
  readonly slice: EndpointSlice;
  readonly servers: readonly (readonly [string, object, isHere: boolean])[];
}[] = [
  {
    what: 'those that are ready, and which are pods of this node',
    slice: slice('dns', [
      ['10.0.2.2', 'n2'],
      ['10.0.1.2', 'n1'],
      ['10.0.3.2', 'n3', ENDING],
    ]),
    servers: [
      ['10.0.1.2', BOTH, true],
      ['10.0.2.2', BOTH, false],
    ],
  },
  {
    what: 'those that still serve, if none is ready',
    slice: slice('dns', [['10.0.2.2', 'n2', ENDING]]),
    servers: [['10.0.2.2', BOTH, false]],
  },
  {
    what: 'none that neither is ready nor serves',
    slice: slice('dns', [['10.0.2.2', 'n2', { ...ENDING, serving: false }]]),
    servers: [],
  },
  {
    what: 'the ports of the pods, by name',
    slice: slice(
      'dns',
      [['10.0.2.2', 'n2']],
      [
        { name: 'metrics', port: 9153, protocol: 'TCP' },
        { name: 'dns-tcp', port: 1054, protocol: 'TCP' },
        { name: 'dns', port: 1053, protocol: 'UDP' },
      ],
    ),
    servers: [['10.0.2.2', { UDP: 1053, TCP: 1054 }, false]],
  },
  {
    what: 'over the protocols of the Service only',
    service: service('dns', ['10.96.0.10'], [{ port: 53, protocol: 'UDP' }]),
    slice: slice('dns', [['10.0.2.2', 'n2']], [{ name: '', port: 53, protocol: 'UDP' }]),
    servers: [['10.0.2.2', { UDP: 53, TCP: null }, false]],
  },
  {
    what: 'none of a Service without DNS ports',
    service: service('dns', ['10.96.0.10'], [{ name: 'metrics', port: 9153, protocol: 'TCP' }]),
    slice: slice('dns', [['10.0.2.2', 'n2']]),
    servers: [],
  },
];

describe('the name servers behind a Service', () => {
  for (const { what, service: of = service('dns', ['10.96.0.10']), slice: only, servers } of rows) {
    test(what, () =>
      assert.deepEqual(
        nameServersOf(of, [only], 'n1').map(({ address, ports, isHere }) => [address, ports, isHere]),
        servers,
      ),
    );
  }
});

describe('the Service whose endpoints are followed', () => {
  const follow = (chosen: string | null) => {
    const services = copyOf<Service>();
    const slices = copyOf<EndpointSlice>();
    let changes = 0;
    const list = followDnsEndpoints({
      ...{ services, slices },
      cluster: ['10.96.0.10', 'FD00:96::000A'],
      service: chosen,
      node: 'n1',
      onChange: () => changes++,
    });
    return {
      ...{ services, slices },
      addresses: () => list().map(({ address }) => address),
      changes: () => changes,
    };
  };

  for (const [what, addresses] of [
    ['has a cluster DNS address', ['10.96.0.10']],
    ['has one in another notation, as its second', ['10.96.7.7', 'fd00:96::a']],
  ] as const) {
    test(`${what}; its slices may arrive before it`, () => {
      const followed = follow(null);
      followed.slices.set(slice('dns', [['10.0.2.2', 'n2']]));
      followed.slices.set(slice('web', [['10.0.2.3', 'n2']]));
      followed.services.set(service('web', ['10.96.1.1']));
      assert.deepEqual([followed.addresses(), followed.changes()], [[], 0]);
      const dns = service('dns', addresses);
      followed.services.set(dns);
      assert.deepEqual([followed.addresses(), followed.changes()], [['10.0.2.2'], 1]);
      followed.slices.set(slice('dns', [['10.0.3.2', 'n2']]));
      assert.deepEqual([followed.addresses(), followed.changes()], [['10.0.3.2'], 2]);
      followed.services.delete(dns);
      assert.deepEqual([followed.addresses(), followed.changes()], [[], 3]);
    });
  }

  test('is the configured one, which may be headless', () => {
    const followed = follow('kube-system/others');
    for (const [name, address] of [
      ['dns', '10.96.0.10'],
      ['others', 'None'],
    ] as const)
      followed.services.set(service(name, [address]));
    followed.slices.set(slice('dns', [['10.0.2.2', 'n2']]));
    const wasEmpty = followed.changes();
    followed.slices.set(slice('others', [['10.0.2.3', 'n2']]));
    assert.deepEqual([followed.addresses(), followed.changes()], [['10.0.2.3'], wasEmpty + 1]);
  });

  test('is the one with a cluster DNS address if the configured one has no endpoints, or is deleted', () => {
    const followed = follow('kube-system/others');
    const others = service('others', ['None']);
    followed.services.set(service('dns', ['10.96.0.10']));
    followed.slices.set(slice('dns', [['10.0.2.2', 'n2']]));
    assert.deepEqual(followed.addresses(), ['10.0.2.2']);
    followed.services.set(others);
    followed.slices.set(slice('others', [['10.0.2.3', 'n2']]));
    assert.deepEqual(followed.addresses(), ['10.0.2.3']);
    const before = followed.changes();
    followed.services.delete(others);
    assert.deepEqual([followed.addresses(), followed.changes()], [['10.0.2.2'], before + 1]);
  });
});

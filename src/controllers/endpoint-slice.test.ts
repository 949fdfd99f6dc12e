import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { EndpointSlice, Pod, Service, SliceEndpoint } from '../kube/types.ts';
import { isMirrored, reconcileMirror } from './endpoint-mirroring.ts';
import { reconcileEndpointSlices } from './endpoint-slice.ts';
import { reconcileEndpoints } from './endpoints.ts';
import { packSlices, type SliceGroup } from './slice-packing.ts';
import { node, pod } from './testing/objects.ts';
import { zoneShares } from './topology-hints.ts';

type Spec = NonNullable<Service['spec']>;

function service(spec: Partial<Spec> = {}, annotations: Record<string, string> = {}): Service {
  return {
    metadata: { name: 'web', namespace: 'default', uid: 'svc', labels: { team: 'x' }, annotations },
    spec: {
      selector: { app: 'web' },
      ipFamilies: ['IPv4'],
      ports: [{ name: 'http', port: 80, targetPort: 8080 }],
      ...spec,
    },
  };
}

const NODES = [
  node('a', { labels: { 'topology.kubernetes.io/zone': 'one' } }),
  node('b', { labels: { 'topology.kubernetes.io/zone': 'two' } }),
];
const nodeOf = (name: string) => NODES.find(({ metadata }) => metadata?.name === name);

function slicesOf(object: Service, pods: readonly Pod[], slices: readonly EndpointSlice[] = []) {
  return reconcileEndpointSlices({
    service: object,
    pods,
    slices,
    nodeOf,
    shares: zoneShares(NODES),
    triggeredAt: null,
  });
}
const named = (port: string, number: number): Partial<NonNullable<Pod['spec']>> => ({
  containers: [{ name: 'main', image: 'host', ports: [{ name: port, containerPort: number }] }],
});
/** "10.0.0.1 ready", "10.0.0.1 serving terminating", … */
const text = ({ addresses, conditions }: SliceEndpoint) =>
  [
    addresses[0],
    conditions?.ready ? 'ready' : '',
    !conditions?.ready && conditions?.serving ? 'serving' : '',
    conditions?.terminating ? 'terminating' : '',
  ]
    .filter(Boolean)
    .join(' ');

const ROWS: readonly [name: string, service: Service, pods: readonly Pod[], slices: readonly string[][]][] = [
  ['a ready pod is ready', service(), [pod('p', { ip: '10.0.0.1' })], [['10.0.0.1 ready']]],
  [
    'an unready pod is listed as unready',
    service(),
    [pod('p', { ip: '10.0.0.1', ready: false })],
    [['10.0.0.1']],
  ],
  [
    'a terminating pod that still answers is serving',
    service(),
    [pod('p', { ip: '10.0.0.1', deleting: true })],
    [['10.0.0.1 serving terminating']],
  ],
  [
    'publishNotReadyAddresses makes all ready',
    service({ publishNotReadyAddresses: true }),
    [pod('p', { ip: '10.0.0.1', ready: false })],
    [['10.0.0.1 ready']],
  ],
  ['a pod without an address is omitted', service(), [pod('p')], [[]]],
  ['a finished pod is omitted', service(), [pod('p', { ip: '10.0.0.1', phase: 'Succeeded' })], [[]]],
  ['a pod of a deleted node is omitted', service(), [pod('p', { ip: '10.0.0.1', node: 'gone' })], [[]]],
  ['no pods: one empty slice', service(), [], [[]]],
  [
    'two families: a slice for each',
    service({ ipFamilies: ['IPv4', 'IPv6'] }),
    [pod('p', { ip: '10.0.0.1 fd00::1' })],
    [['10.0.0.1 ready'], ['fd00::1 ready']],
  ],
  [
    'a named port that pods resolve differently: a slice for each number',
    service({ ports: [{ port: 80, targetPort: 'http' }] }),
    [
      pod('p', { ip: '10.0.0.1', spec: named('http', 8080) }),
      pod('q', { ip: '10.0.0.2', spec: named('http', 9090) }),
    ],
    [['10.0.0.1 ready'], ['10.0.0.2 ready']],
  ],
  [
    'a pod without the named port is omitted',
    service({ ports: [{ port: 80, targetPort: 'http' }] }),
    [pod('p', { ip: '10.0.0.1', spec: named('other', 8080) })],
    [[]],
  ],
  [
    'a headless Service without ports lists its pods',
    service({ clusterIP: 'None', ports: [] }),
    [pod('p', { ip: '10.0.0.1' })],
    [['10.0.0.1 ready']],
  ],
];
for (const [name, object, pods, expected] of ROWS) {
  test(name, () => {
    const writes = slicesOf(object, pods);
    assert.deepEqual(
      writes.create.map(({ endpoints }) => endpoints.map(text)),
      expected,
    );
    const settled = writes.create.map((slice, i) => ({
      ...slice,
      metadata: { ...slice.metadata, name: `s${i}`, uid: `s${i}` },
    }));
    const again = slicesOf(object, pods, settled);
    assert.deepEqual(again, { create: [], update: [], delete: [] }, 'the second look writes nothing');
  });
}

test('an endpoint contains its pod, node, zone and host name; the slice its labels and owner', () => {
  const object = service({ clusterIP: 'None' });
  const [slice] = slicesOf(object, [
    pod('db-0', { ip: '10.0.0.1', spec: { hostname: 'db-0', subdomain: 'web' } }),
  ]).create;
  assert.deepEqual(slice?.endpoints[0], {
    addresses: ['10.0.0.1'],
    conditions: { ready: true, serving: true, terminating: false },
    hostname: 'db-0',
    targetRef: { kind: 'Pod', namespace: 'default', name: 'db-0', uid: 'uid of db-0' },
    nodeName: 'a',
    zone: 'one',
  });
  assert.deepEqual(slice?.metadata?.labels, {
    team: 'x',
    'kubernetes.io/service-name': 'web',
    'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
    'service.kubernetes.io/headless': '',
  });
  assert.equal(slice?.metadata?.ownerReferences?.[0]?.uid, 'svc');
});

describe('hints', () => {
  const pods = [
    pod('p', { ip: '10.0.0.1', node: 'a' }),
    pod('q', { ip: '10.0.0.2', node: 'b' }),
    pod('r', { ip: '10.0.0.3', node: 'b', ready: false }),
  ];
  const zone = (name: string) => ({ forZones: [{ name }] });
  const rows: readonly [name: string, service: Service, hints: readonly unknown[]][] = [
    ['no hints unless requested', service(), [undefined, undefined, undefined]],
    [
      'PreferClose: the own zone',
      service({ trafficDistribution: 'PreferClose' }),
      [zone('one'), zone('two'), undefined],
    ],
    [
      'PreferSameZone: the own zone',
      service({ trafficDistribution: 'PreferSameZone' }),
      [zone('one'), zone('two'), undefined],
    ],
    [
      'PreferSameNode: the own node, then the own zone',
      service({ trafficDistribution: 'PreferSameNode' }),
      [
        { ...zone('one'), forNodes: [{ name: 'a' }] },
        { ...zone('two'), forNodes: [{ name: 'b' }] },
        undefined,
      ],
    ],
    [
      'topology-mode Auto: by the zones’ share of CPUs',
      service({}, { 'service.kubernetes.io/topology-mode': 'Auto' }),
      [zone('one'), zone('two'), undefined],
    ],
  ];
  for (const [name, object, hints] of rows) {
    test(name, () => {
      const [slice] = slicesOf(object, pods).create;
      assert.deepEqual(
        slice?.endpoints.map((endpoint) => endpoint.hints),
        hints,
      );
    });
  }
  test('topology-mode Auto is disabled with fewer endpoints than zones', () => {
    const [slice] = slicesOf(
      service({}, { 'service.kubernetes.io/topology-mode': 'Auto' }),
      pods.slice(0, 1),
    ).create;
    assert.equal(slice?.endpoints[0]?.hints, undefined);
  });
});

describe('packing', () => {
  const endpoints = (first: number, last: number): SliceEndpoint[] =>
    Array.from({ length: last - first + 1 }, (_, i) => ({ addresses: [`10.0.0.${first + i}`] }));
  const ports = [{ name: '', port: 80, protocol: 'TCP' }];
  const slice = (name: string, list: SliceEndpoint[], number = 80): EndpointSlice => ({
    metadata: { name, labels: {} },
    addressType: 'IPv4',
    ports: [{ name: '', port: number, protocol: 'TCP' }],
    endpoints: list,
  });
  const group = (list: SliceEndpoint[]): SliceGroup => ({ addressType: 'IPv4', ports, endpoints: list });
  /** Slices hold five here. */
  const rows: readonly [
    name: string,
    existing: readonly EndpointSlice[],
    wanted: SliceEndpoint[],
    writes: { create?: number[]; update?: Record<string, number>; delete?: string[] },
  ][] = [
    ['twelve new ones: three slices', [], endpoints(1, 12), { create: [5, 5, 2] }],
    [
      'one more: into the slice with space',
      [slice('s', endpoints(1, 3))],
      endpoints(1, 4),
      { update: { s: 4 } },
    ],
    ['one more, all full: a new slice', [slice('s', endpoints(1, 5))], endpoints(1, 6), { create: [1] }],
    [
      'one goes, one comes: one write',
      [slice('s', endpoints(1, 5)), slice('t', endpoints(6, 8))],
      [...endpoints(2, 8), ...endpoints(20, 20)],
      { update: { s: 5 } },
    ],
    [
      'the fullest slice with space for all is filled',
      [slice('s', endpoints(1, 2)), slice('t', endpoints(3, 6))],
      endpoints(1, 7),
      { update: { t: 5 } },
    ],
    [
      'an emptied slice is deleted',
      [slice('s', endpoints(1, 5)), slice('t', endpoints(6, 6))],
      endpoints(1, 5),
      { delete: ['t'] },
    ],
    ['the last slice remains, empty', [slice('s', endpoints(1, 2))], [], { update: { s: 0 } }],
    [
      'slices of other ports are deleted',
      [slice('s', endpoints(1, 2), 81)],
      endpoints(1, 2),
      { create: [2], delete: ['s'] },
    ],
  ];
  for (const [name, existing, wanted, expected] of rows) {
    test(name, () => {
      const writes = packSlices([group(wanted)], existing, { labels: {} }, 5);
      assert.deepEqual(
        {
          create: writes.create.map((made) => made.endpoints.length),
          update: Object.fromEntries(
            writes.update.map((made) => [made.metadata?.name, made.endpoints.length]),
          ),
          delete: writes.delete.map(({ metadata }) => metadata?.name),
        },
        { create: [], update: {}, delete: [], ...expected },
      );
    });
  }
});

test('the legacy Endpoints list ready and unready addresses separately, without terminating ones', () => {
  const view = {
    service: service(),
    pods: [
      pod('p', { ip: '10.0.0.1' }),
      pod('q', { ip: '10.0.0.2', ready: false }),
      pod('r', { ip: '10.0.0.3', deleting: true }),
    ],
    nodeOf,
    triggeredAt: null,
  };
  const made = reconcileEndpoints({ ...view, current: undefined });
  const [subset] = made?.subsets ?? [];
  assert.deepEqual(
    subset?.addresses?.map(({ ip }) => ip),
    ['10.0.0.1'],
  );
  assert.deepEqual(
    subset?.notReadyAddresses?.map(({ ip }) => ip),
    ['10.0.0.2'],
  );
  assert.deepEqual(subset?.ports, [{ name: 'http', port: 8080, protocol: 'TCP' }]);
  assert.equal(reconcileEndpoints({ ...view, current: made ?? undefined }), null);
});

test('manually created Endpoints become slices of their families', () => {
  const writes = reconcileMirror(
    {
      metadata: { name: 'web', namespace: 'default', uid: 'e' },
      subsets: [
        {
          addresses: [{ ip: '192.0.2.1' }, { ip: '2001:db8::1' }],
          notReadyAddresses: [{ ip: '192.0.2.2' }],
          ports: [{ port: 80 }],
        },
      ],
    },
    [],
  );
  assert.deepEqual(
    writes.create.map(({ addressType, endpoints }) => [addressType, endpoints.map(text)]),
    [
      ['IPv4', ['192.0.2.1 ready', '192.0.2.2']],
      ['IPv6', ['2001:db8::1 ready']],
    ],
  );
});

const manual = { metadata: { name: 'web', labels: {} as Record<string, string> } };
const MIRRORED: readonly [
  name: string,
  endpoints: typeof manual,
  service: Service | undefined,
  mirrored: boolean,
][] = [
  ['hand-made', manual, service({ selector: {} }), true],
  ['of a Service with a selector', manual, service(), false],
  ['without a Service', manual, undefined, false],
  [
    'with skip-mirror',
    { metadata: { name: 'web', labels: { 'endpointslice.kubernetes.io/skip-mirror': 'true' } } },
    service({ selector: {} }),
    false,
  ],
];
for (const [name, endpoints, object, expected] of MIRRORED) {
  test(`Endpoints ${name} are ${expected ? '' : 'not '}mirrored`, () => {
    assert.equal(isMirrored(endpoints, object), expected);
  });
}

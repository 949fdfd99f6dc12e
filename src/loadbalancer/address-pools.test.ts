import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { REQUESTED_ADDRESSES, REQUESTED_POOL, SHARING_KEY } from '../kube/load-balancer.ts';
import type { Service } from '../kube/types.ts';
import { type AddressTable, createAddressTable, type LoadBalancerPool } from './address-pools.ts';

interface Wish {
  readonly name: string;
  readonly families?: ('IPv4' | 'IPv6')[];
  readonly ports?: number[];
  readonly ask?: string;
  readonly field?: string;
  readonly labels?: Record<string, string>;
  readonly namespace?: string;
  readonly has?: string[];
  readonly key?: string;
  readonly pool?: string;
  readonly local?: Record<string, string>;
}

function service({
  name,
  families = ['IPv4'],
  ports = [80],
  ask,
  field,
  labels = {},
  namespace = 'default',
  has = [],
  key,
  pool,
  local,
}: Wish): Service {
  return {
    metadata: {
      name,
      namespace,
      labels,
      annotations: {
        ...(ask === undefined ? {} : { [REQUESTED_ADDRESSES]: ask }),
        ...(key === undefined ? {} : { [SHARING_KEY]: key }),
        ...(pool === undefined ? {} : { [REQUESTED_POOL]: pool }),
      },
    },
    spec: {
      type: 'LoadBalancer',
      ipFamilies: families,
      ports: ports.map((port) => ({ port })),
      ...(field === undefined ? {} : { loadBalancerIP: field }),
      ...(local === undefined ? {} : { externalTrafficPolicy: 'Local', selector: local }),
    },
    status: { loadBalancer: { ingress: has.map((ip) => ({ ip })) } },
  };
}

const POOL: LoadBalancerPool = { name: 'default', ranges: ['10.0.0.1-10.0.0.3', 'fd00::1-fd00::2'] };

function tableOf(...pools: LoadBalancerPool[]): AddressTable {
  return createAddressTable({
    pools: pools.length > 0 ? pools : [POOL],
    namespaceLabels: (name) => (name === 'prod' ? { tier: 'prod' } : {}),
    otherUse: (address) => (address === '10.0.0.2' ? 'node node-1' : null),
  });
}

const got = (table: AddressTable, wish: Wish) => {
  const { addresses, refusals } = table.allocate(service(wish));
  return [...addresses, ...refusals.map(({ reason, message }) => `${reason}: ${message}`)];
};

const CASES: [string, Wish[], string[]][] = [
  ['the first Service gets the first address', [{ name: 'a' }], ['10.0.0.1']],
  ['addresses of nodes are left out', [{ name: 'a' }, { name: 'b' }], ['10.0.0.3']],
  ['an address of each family', [{ name: 'a', families: ['IPv6', 'IPv4'] }], ['fd00::1', '10.0.0.1']],
  [
    'every address is in use',
    [{ name: 'a' }, { name: 'b' }, { name: 'c' }],
    ['PoolExhausted: every IPv4 address is in use (default: 10.0.0.1-10.0.0.3)'],
  ],
  [
    'one family is exhausted, the other gets an address',
    [{ name: 'a' }, { name: 'b' }, { name: 'c', families: ['IPv4', 'IPv6'] }],
    ['fd00::1', 'PoolExhausted: every IPv4 address is in use (default: 10.0.0.1-10.0.0.3)'],
  ],
  ['requested by annotation', [{ name: 'a', ask: '10.0.0.3' }], ['10.0.0.3']],
  ['requested by spec.loadBalancerIP', [{ name: 'a', field: '10.0.0.3' }], ['10.0.0.3']],
  [
    'the annotation takes precedence over the field',
    [{ name: 'a', field: '10.0.0.1', ask: '10.0.0.3' }],
    ['10.0.0.3'],
  ],
  [
    'requested in both families',
    [{ name: 'a', families: ['IPv4', 'IPv6'], ask: 'fd00::0002, 10.0.0.3' }],
    ['10.0.0.3', 'fd00::2'],
  ],
  [
    'requested in one family, the other is allocated',
    [{ name: 'a', families: ['IPv4', 'IPv6'], ask: '10.0.0.3' }],
    ['10.0.0.3', 'fd00::1'],
  ],
  [
    'requested, but in use by another Service',
    [{ name: 'a' }, { name: 'b', ask: '10.0.0.1' }],
    ['AddressTaken: 10.0.0.1 is in use by Service default/a'],
  ],
  [
    'requested, but an address of a node',
    [{ name: 'a', ask: '10.0.0.2' }],
    ['AddressTaken: 10.0.0.2 is in use by node node-1'],
  ],
  [
    'requested, but in no pool',
    [{ name: 'a', ask: '10.9.0.1' }],
    ['AddressNotInPool: 10.9.0.1 is not in the pools for this Service (default: 10.0.0.1-10.0.0.3)'],
  ],
  [
    'requested, but not an address',
    [{ name: 'a', ask: 'here' }],
    [`InvalidRequest: "here" in the annotation ${REQUESTED_ADDRESSES} is not an address`],
  ],
  [
    'two addresses of a family requested',
    [{ name: 'a', ask: '10.0.0.1,10.0.0.3' }],
    [
      '10.0.0.1',
      `InvalidRequest: "10.0.0.3" in the annotation ${REQUESTED_ADDRESSES} is a second IPv4 address: a Service has one per family`,
    ],
  ],
  [
    'requested in a family that the Service does not have',
    [{ name: 'a', field: 'fd00::1' }],
    [
      'InvalidRequest: "fd00::1" in spec.loadBalancerIP is IPv6, which spec.ipFamilies of this Service does not list',
    ],
  ],
  [
    'two Services that request the same address share it if their keys are equal and their ports do not conflict',
    [
      { name: 'a', ask: '10.0.0.3', ports: [80], key: 'k' },
      { name: 'b', ask: '10.0.0.3', ports: [443], key: 'k', namespace: 'other' },
    ],
    ['10.0.0.3'],
  ],
  ...(
    [
      ['no keys', undefined, undefined],
      ['a key on only one of them', undefined, 'k'],
      ['different keys', 'k', 'l'],
    ] as const
  ).map(([what, first, second]): [string, Wish[], string[]] => [
    `two Services that request the same address do not share it with ${what}`,
    [
      { name: 'a', ask: '10.0.0.3', ports: [80], ...(first ? { key: first } : {}) },
      { name: 'b', ask: '10.0.0.3', ports: [443], ...(second ? { key: second } : {}), namespace: 'other' },
    ],
    [
      `AddressTaken: 10.0.0.3 is in use by Service default/a; both need the same annotation ${SHARING_KEY} to share it`,
    ],
  ]),
  [
    'a Service with policy Local shares with Services that have the same endpoints',
    [
      { name: 'a', ask: '10.0.0.3', ports: [80], key: 'k', local: { app: 'a' } },
      { name: 'b', ask: '10.0.0.3', ports: [443], key: 'k', local: { app: 'a' } },
    ],
    ['10.0.0.3'],
  ],
  [
    'a Service with policy Local does not share with Services that have other endpoints',
    [
      { name: 'a', ask: '10.0.0.3', ports: [80], key: 'k', local: { app: 'a' } },
      { name: 'b', ask: '10.0.0.3', ports: [443], key: 'k' },
    ],
    [
      'AddressTaken: 10.0.0.3 is in use by Service default/a; with externalTrafficPolicy: Local on either, both need it and equal selectors to share it',
    ],
  ],
  [
    'two Services that request the same address do not share a port',
    [
      { name: 'a', ask: '10.0.0.3', ports: [80, 443], key: 'k' },
      { name: 'b', ask: '10.0.0.3', ports: [443], key: 'k' },
    ],
    ['AddressTaken: 10.0.0.3 is in use by Service default/a, which has port 443/TCP, too'],
  ],
  [
    'a Service without a request shares with no other',
    [
      { name: 'a', ports: [80] },
      { name: 'b', ask: '10.0.0.1', ports: [443] },
    ],
    ['AddressTaken: 10.0.0.1 is in use by Service default/a'],
  ],
];
for (const [what, wishes, expected] of CASES) {
  test(what, () => {
    const table = tableOf();
    const results = wishes.map((wish) => got(table, wish));
    assert.deepEqual(results.at(-1), expected);
  });
}

describe('over time', () => {
  test('a Service keeps its address, however often addresses are allocated', () => {
    const table = tableOf();
    got(table, { name: 'a' });
    got(table, { name: 'b' });
    table.release('default/a');
    assert.deepEqual(got(table, { name: 'b' }), ['10.0.0.3']);
  });

  test('a released address is reused last', () => {
    const table = tableOf({ name: 'p', ranges: ['10.1.0.1-10.1.0.3'] });
    assert.deepEqual(got(table, { name: 'a' }), ['10.1.0.1']);
    assert.equal(table.release('default/a'), true);
    assert.equal(table.release('default/a'), false);
    assert.deepEqual(got(table, { name: 'b' }), ['10.1.0.2']);
    assert.deepEqual(got(table, { name: 'c' }), ['10.1.0.3']);
    assert.deepEqual(got(table, { name: 'd' }), ['10.1.0.1']);
  });

  test('a restart adopts the addresses of the Services', () => {
    const table = tableOf();
    table.adopt(service({ name: 'b', has: ['10.0.0.3', 'fd00::1'] }));
    assert.deepEqual(got(table, { name: 'a' }), ['10.0.0.1']);
    assert.deepEqual(got(table, { name: 'b', has: ['10.0.0.3'] }), ['10.0.0.3']);
  });

  test('two Services with the same address: the first adopted keeps it, the other gets another one', () => {
    const table = tableOf();
    table.adopt(service({ name: 'a', has: ['10.0.0.3'] }));
    table.adopt(service({ name: 'b', has: ['10.0.0.3'] }));
    assert.deepEqual(got(table, { name: 'b', has: ['10.0.0.3'] }), ['10.0.0.1']);
    assert.deepEqual(got(table, { name: 'a', has: ['10.0.0.3'] }), ['10.0.0.3']);
  });

  test('an address that was removed from the pools is replaced', () => {
    const table = tableOf();
    table.adopt(service({ name: 'a', has: ['10.7.0.1'] }));
    assert.deepEqual(got(table, { name: 'a', has: ['10.7.0.1'] }), ['10.0.0.1']);
  });

  test('a Service that requests an address in use keeps its own until the other is free', () => {
    const table = tableOf();
    got(table, { name: 'a' });
    got(table, { name: 'b' });
    const [kept, refusal] = got(table, { name: 'b', ask: '10.0.0.1' });
    assert.deepEqual([kept, refusal], ['10.0.0.3', 'AddressTaken: 10.0.0.1 is in use by Service default/a']);
    table.release('default/a');
    assert.deepEqual(got(table, { name: 'b', ask: '10.0.0.1' }), ['10.0.0.1']);
    assert.deepEqual(table.holders('10.0.0.3'), []);
  });

  test('a Service that shares an address and adds a port of the other loses the address', () => {
    const table = tableOf();
    got(table, { name: 'a', ask: '10.0.0.3', ports: [80], key: 'k' });
    got(table, { name: 'b', ask: '10.0.0.3', ports: [443], key: 'k' });
    assert.deepEqual(table.holders('10.0.0.3'), ['default/a', 'default/b']);
    assert.deepEqual(got(table, { name: 'b', ask: '10.0.0.3', ports: [443, 80], key: 'k' }), [
      'AddressTaken: 10.0.0.3 is in use by Service default/a, which has port 80/TCP, too',
    ]);
  });
});

describe('pools', () => {
  const prod = {
    name: 'prod',
    ranges: ['10.1.0.0/30'],
    namespaceSelectors: [{ matchLabels: { tier: 'prod' } }],
  };
  const web = { name: 'web', ranges: ['10.2.0.7'], serviceSelectors: [{ matchLabels: { app: 'web' } }] };

  test('are used for the namespaces and Services that they select', () => {
    const table = tableOf(prod, web);
    assert.deepEqual(got(table, { name: 'a', namespace: 'prod' }), ['10.1.0.1']);
    assert.deepEqual(got(table, { name: 'b', labels: { app: 'web' } }), ['10.2.0.7']);
    assert.deepEqual(got(table, { name: 'c' }), ['NoPool: no pool has IPv4 addresses for this Service']);
    assert.deepEqual(got(table, { name: 'd', ask: '10.1.0.2' }), [
      'AddressNotInPool: 10.1.0.2 is not in the pools for this Service',
    ]);
  });

  test('can select namespaces by name', () => {
    const table = tableOf({ ...prod, namespaces: ['stage'] });
    assert.deepEqual(got(table, { name: 'a', namespace: 'stage' }), ['10.1.0.1']);
    assert.deepEqual(got(table, { name: 'b', namespace: 'prod' }), ['10.1.0.2']);
    assert.match(got(table, { name: 'c' })[0] ?? '', /^NoPool/);
  });

  test('are used by priority, pools without priority last', () => {
    const range = (name: string, address: string, priority = 0) => ({ name, ranges: [address], priority });
    const table = tableOf(
      range('rest', '10.0.0.1'),
      range('second', '10.0.0.3', 20),
      range('first', '10.0.0.4', 3),
    );
    const addresses = ['a', 'b', 'c'].flatMap((name) => got(table, { name }));
    assert.deepEqual(addresses, ['10.0.0.4', '10.0.0.3', '10.0.0.1']);
  });

  test('without autoAssign are used for Services that request an address, or the pool', () => {
    const table = tableOf({ name: 'vip', ranges: ['10.0.0.3-10.0.0.5'], autoAssign: false });
    assert.match(
      got(table, { name: 'a' })[0] ?? '',
      /^NoPool: the pools for this Service have autoAssign: false: .*fairlead\.dev\/load-balancer-pool \(vip: 10\.0\.0\.3-10\.0\.0\.5\)$/,
    );
    assert.deepEqual(got(table, { name: 'b', ask: '10.0.0.5' }), ['10.0.0.5']);
    assert.deepEqual(got(table, { name: 'c', pool: 'vip' }), ['10.0.0.3']);
    // A Service that has an address keeps it.
    table.adopt(service({ name: 'd', has: ['10.0.0.4'] }));
    assert.deepEqual(got(table, { name: 'd' }), ['10.0.0.4']);
  });

  test('named by a Service are the only ones for it', () => {
    const table = tableOf(POOL, { name: 'other', ranges: ['10.9.0.1'] }, prod);
    assert.deepEqual(got(table, { name: 'a' }), ['10.0.0.1']);
    assert.deepEqual(got(table, { name: 'a', pool: 'other' }), ['10.9.0.1']);
    assert.match(got(table, { name: 'b', pool: 'prod' })[0] ?? '', /^NoPool: pool "prod" of the annotation/);
    assert.match(got(table, { name: 'c', pool: 'none' })[0] ?? '', /does not exist/);
  });

  test('the ends of a network are allocated only on request', () => {
    const table = tableOf({ name: 'p', ranges: ['10.1.0.0/30', 'fd00::/126'] });
    assert.deepEqual(got(table, { name: 'a' }), ['10.1.0.1']);
    assert.deepEqual(got(table, { name: 'b' }), ['10.1.0.2']);
    assert.match(got(table, { name: 'c' })[0] ?? '', /^PoolExhausted/);
    assert.deepEqual(got(table, { name: 'd', ask: '10.1.0.0' }), ['10.1.0.0']);
    assert.deepEqual(got(table, { name: 'e', families: ['IPv6'] }), ['fd00::1']);
  });

  test('500 Services get different addresses', () => {
    const table = tableOf({ name: 'p', ranges: ['10.1.0.0/23', 'fd00::/64'] });
    const all = Array.from({ length: 500 }, (_, i) =>
      got(table, { name: `s${i}`, families: ['IPv4', 'IPv6'] }),
    );
    assert.equal(new Set(all.flat()).size, 1000);
  });

  test('a malformed pool is refused by name', () => {
    assert.throws(
      () => tableOf({ name: 'p', ranges: ['10.1.0.9-10.1.0.1'] }),
      /pool p: "10.1.0.9-10.1.0.1" is not a network/,
    );
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseCidr } from '../lib/address.ts';
import { addressToNumber, parseAddressRange } from '../lib/address-range.ts';
import { addressFor } from './assign.ts';
import { decideEgress } from './decide.ts';
import { readGateway } from './gateway-reader.ts';
import { byPrecedence, candidateNodes, selecting } from './gateway-table.ts';
import { heldMarkOf, isRoutingTable, markOf, numberAddresses, routingTableOf } from './marks.ts';
import type { EgressPod, EgressView, Gateway } from './model.ts';

const cidrs = (...texts: string[]) => texts.flatMap((text) => parseCidr(text) ?? []);
const cluster = cidrs('10.244.0.0/16', '10.96.0.0/16', '172.30.0.11/32', '172.30.0.12/32', 'fd00:244::/48');

const gateway = (name: string, spec: object, createdAt = '2026-01-01T00:00:00Z'): Gateway =>
  readGateway({ metadata: { name, creationTimestamp: createdAt }, spec }).gateway;
const pod = (key: string, labels: Record<string, string>, ...addresses: string[]): EgressPod => ({
  key,
  namespace: key.split('/')[0] ?? '',
  node: 'node-1',
  labels,
  addresses,
});
const pods = [
  pod('shop/web', { app: 'web' }, '10.244.1.2', 'fd00:244:1::2'),
  pod('shop/db', { app: 'db' }, '10.244.1.3', 'fd00:244:1::3'),
  pod('other/web', { app: 'web' }, '10.244.2.2'),
];
const namespaces: Readonly<Record<string, Record<string, string>>> = { shop: { team: 'a' }, other: {} };
const viewOf = (gateways: readonly Gateway[], holders: Record<string, string> = {}): EgressView => ({
  gateways: gateways
    .toSorted(byPrecedence)
    .map((one) => selecting(one, pods, (name) => namespaces[name] ?? null)),
  cluster,
  holders: new Map(Object.entries(holders)),
});

test('a packet of a selected pod leaves by the node that has the address, with this address', () => {
  const view = viewOf(
    [gateway('a', { podSelector: { matchLabels: { app: 'web' } }, addresses: ['172.30.0.50'] })],
    { '172.30.0.50': 'node-2' },
  );
  const decide = (source: string, destination: string) => decideEgress(view, { source, destination });
  const leaves = { kind: 'leaves', gateway: 'a', node: 'node-2', address: '172.30.0.50' };
  const rows: [source: string, destination: string, decision: object][] = [
    ['10.244.1.2', '203.0.113.1', leaves],
    ['10.244.2.2', '172.30.0.2', leaves],
    ['10.244.1.3', '203.0.113.1', { kind: 'stays', because: 'not selected' }],
    ['203.0.113.9', '203.0.113.1', { kind: 'stays', because: 'not selected' }],
    ['10.244.1.2', '10.244.9.9', { kind: 'stays', because: 'in the cluster' }],
    ['10.244.1.2', '10.96.0.10', { kind: 'stays', because: 'in the cluster' }],
    ['10.244.1.2', '172.30.0.12', { kind: 'stays', because: 'in the cluster' }],
    ['10.244.1.2', '169.254.169.254', { kind: 'stays', because: 'in the cluster' }],
    ['10.244.1.2', '224.0.0.1', { kind: 'stays', because: 'in the cluster' }],
    ['10.244.1.2', '255.255.255.255', { kind: 'stays', because: 'in the cluster' }],
    // The gateway has no IPv6 address: no other one is used.
    ['fd00:244:1::2', '2001:db8::1', { kind: 'waits', gateway: 'a', address: null }],
    ['fd00:244:1::2', 'fe80::1', { kind: 'stays', because: 'in the cluster' }],
  ];
  for (const [source, destination, decision] of rows)
    assert.deepEqual(decide(source, destination), decision, `${source} → ${destination}`);
});

test('without a node that has the address, packets wait', () => {
  const view = viewOf([gateway('a', { addresses: ['172.30.0.50'] })]);
  assert.deepEqual(decideEgress(view, { source: '10.244.1.2', destination: '203.0.113.1' }), {
    kind: 'waits',
    gateway: 'a',
    address: '172.30.0.50',
  });
});

test('the first gateway by age, then by name, whose destinations include the packet decides', () => {
  const view = viewOf(
    [
      gateway('young', { addresses: ['172.30.0.51'] }, '2026-01-02T00:00:00Z'),
      gateway('b', { addresses: ['172.30.0.53'], destinationCIDRs: ['203.0.113.0/24'] }),
      gateway('a', {
        addresses: ['172.30.0.52'],
        destinationCIDRs: ['203.0.113.0/25', '2001:db8::/32'],
        exceptCIDRs: ['203.0.113.7/32'],
      }),
    ],
    {},
  );
  const of = (destination: string) => {
    const decision = decideEgress(view, { source: '10.244.1.2', destination });
    return decision.kind === 'waits' ? decision.gateway : decision.kind;
  };
  assert.deepEqual(['203.0.113.1', '203.0.113.7', '203.0.113.200', '198.51.100.1'].map(of), [
    'a',
    'b',
    'b',
    'young',
  ]);
});

test('namespaces are selected by their labels; pods of an unknown namespace are not selected', () => {
  const one = gateway('a', {
    namespaceSelector: { matchLabels: { team: 'a' } },
    addresses: ['172.30.0.50', 'fd00::50'],
  });
  const found = selecting(
    one,
    [...pods, pod('gone/x', {}, '10.244.3.3')],
    (name) => namespaces[name] ?? null,
  );
  assert.deepEqual(
    [...found.sources],
    [
      ['10.244.1.2', '172.30.0.50'],
      ['fd00:244:1::2', 'fd00::50'],
      ['10.244.1.3', '172.30.0.50'],
      ['fd00:244:1::3', 'fd00::50'],
    ],
  );
});

test('of several addresses a pod keeps one, and only pods of a removed address change', () => {
  const addresses = ['172.30.0.50', '172.30.0.51', '172.30.0.52', 'fd00::50'];
  const names = Array.from({ length: 3000 }, (_, i) => `shop/pod-${i}`);
  const before = new Map(names.map((name) => [name, addressFor(name, addresses, 'ipv4')]));
  const left = addresses.filter((one) => one !== '172.30.0.51');
  for (const [name, address] of before) {
    const now = addressFor(name, left, 'ipv4');
    if (address !== '172.30.0.51') assert.equal(now, address);
    assert.equal(addressFor(name, addresses.toReversed(), 'ipv4'), address);
  }
  for (const address of addresses.slice(0, 3)) {
    const share = [...before.values()].filter((one) => one === address).length / names.length;
    assert.ok(share > 0.28 && share < 0.39, `${address} has ${share}`);
  }
});

test('an object that cannot be read selects pods and has no address', () => {
  const rows: [spec: object, problem: RegExp][] = [
    [{ addresses: [] }, /spec.addresses is empty/],
    [{ addresses: ['172.30.0.999'] }, /"172.30.0.999" is not an IP address/],
    [{ addresses: ['127.0.0.1'] }, /127.0.0.1 is not an address of a host/],
    [{ addresses: ['172.30.0.50'], destinationCIDRs: ['10.0.0.0/33'] }, /"10.0.0.0\/33" is not a network/],
    [{ addresses: ['172.30.0.50'], exceptCIDRs: ['x'] }, /"x" is not a network/],
    [{ addresses: Array.from({ length: 17 }, (_, i) => `172.30.0.${i + 50}`) }, /more than 16/],
  ];
  for (const [spec, problem] of rows) {
    const read = readGateway({ metadata: { name: 'a' }, spec });
    assert.match(read.problem ?? '', problem);
    assert.deepEqual([read.gateway.addresses, read.gateway.destinations], [[], null]);
    const view = { ...viewOf([read.gateway]) };
    assert.equal(decideEgress(view, { source: '10.244.1.2', destination: '203.0.113.1' }).kind, 'waits');
  }
});

test('cordoned nodes do not count while another one is ready', () => {
  const node = (name: string, more: object = {}) => ({
    ...{ name, labels: { role: 'gateway' }, isReady: true, isCordoned: false },
    ...more,
  });
  const one = gateway('a', {
    addresses: ['172.30.0.50'],
    nodeSelector: { matchLabels: { role: 'gateway' } },
  });
  const names = (...nodes: ReturnType<typeof node>[]) => [...candidateNodes(one, nodes)];
  assert.deepEqual(names(node('a'), node('b', { isReady: false }), node('c', { labels: {} })), ['a']);
  assert.deepEqual(names(node('a', { isCordoned: true }), node('b')), ['b']);
  assert.deepEqual(names(node('a', { isCordoned: true }), node('b', { isReady: false })), ['a']);
});

test('an address keeps its number while others come and go', () => {
  const first = numberAddresses(['b', 'a']);
  assert.deepEqual(
    [...first],
    [
      ['a', 1],
      ['b', 2],
    ],
  );
  const second = numberAddresses(['c', 'b'], first);
  assert.deepEqual(Object.fromEntries(second), { b: 2, c: 3 });
  assert.notEqual(markOf(1), heldMarkOf(1));
  assert.ok(isRoutingTable(routingTableOf(4095)) && !isRoutingTable(254));
  assert.equal(numberAddresses(Array.from({ length: 5000 }, (_, i) => `${i}`)).size, 4095);
});

/** The rules of the document, written again: without shared code, in another order, on numbers. */
function slowly(gateways: readonly Gateway[], view: EgressView, source: string, destination: string): string {
  const value = addressToNumber(destination) ?? 0n;
  const inside = (texts: readonly string[]) =>
    texts.some((text) => {
      const range = parseAddressRange(text);
      const isFamily = range?.family === (destination.includes(':') ? 'ipv6' : 'ipv4');
      return range !== null && isFamily && range.first <= value && value <= range.last;
    });
  const owner = pods.find(({ addresses }) => addresses.includes(source));
  const sorted = [...gateways].sort((a, b) =>
    `${a.createdAt} ${a.name}`.localeCompare(`${b.createdAt} ${b.name}`),
  );
  let result = 'stays';
  const links = [
    '0.0.0.0/8',
    '127.0.0.0/8',
    '169.254.0.0/16',
    '224.0.0.0/3',
    '::/127',
    'fe80::/10',
    'ff00::/8',
  ];
  if (!owner || inside([...cluster.map(({ text }) => text), ...links])) return result;
  for (const one of sorted.reverse()) {
    const isOfPod = Object.entries(one.podSelector.matchLabels ?? {}).every(
      ([k, v]) => owner.labels[k] === v,
    );
    const isOfNamespace = Object.entries(one.namespaceSelector.matchLabels ?? {}).every(
      ([k, v]) => namespaces[owner.namespace]?.[k] === v,
    );
    const isTo = one.destinations === null || inside(one.destinations.map(({ text }) => text));
    if (!isOfPod || !isOfNamespace || !isTo || inside(one.except.map(({ text }) => text))) continue;
    const own = one.addresses.filter((address) => address.includes(':') === source.includes(':'));
    const address =
      own.length < 2 ? own[0] : addressFor(owner.key, own, source.includes(':') ? 'ipv6' : 'ipv4');
    const node = address === undefined || address === null ? undefined : view.holders.get(address);
    result = node === undefined ? `waits ${one.name}` : `leaves ${one.name} ${node} ${address}`;
  }
  return result;
}

test('decideEgress equals a slow second implementation for 20,000 random packets', () => {
  let seed = 7;
  const random = (n: number) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return Math.floor((seed / 2 ** 31) * n);
  };
  const some = <T>(list: readonly T[]): T[] => list.filter(() => random(2) === 0);
  const one = <T>(list: readonly [T, ...T[]]): T => list[random(list.length)] ?? list[0];
  const networks = ['0.0.0.0/0', '203.0.113.0/24', '203.0.113.128/25', '10.0.0.0/8', '2001:db8::/32', '::/0'];
  const destinations = [
    ...['203.0.113.1', '203.0.113.200', '10.1.1.1', '10.244.1.3', '172.30.0.11', '172.30.0.2', '8.8.8.8'],
    ...['2001:db8::1', '2001:db9::1', 'fd00:244::1', 'fe80::1', '255.255.255.255', '127.0.0.1', '::1'],
  ];
  const sources = [...pods.flatMap(({ addresses }) => addresses), '10.244.7.7', 'fd00:244::9'];
  const counts = new Map<string, number>();
  for (let round = 0; round < 1000; round++) {
    const gateways = Array.from({ length: random(4) }, (_, i) =>
      gateway(
        `g${(i * 7 + random(3)) % 5}-${i}`,
        {
          podSelector: random(2) ? {} : { matchLabels: { app: one(['web', 'db', 'none']) } },
          namespaceSelector: random(2) ? {} : { matchLabels: { team: 'a' } },
          destinationCIDRs: some(networks),
          exceptCIDRs: random(3) ? [] : some(networks.slice(1, 5)),
          addresses: ['172.30.0.50', ...some(['172.30.0.51', 'fd00::50', 'fd00::51'])],
        },
        `2026-01-0${1 + random(3)}T00:00:00Z`,
      ),
    );
    const holders = Object.fromEntries(
      some(['172.30.0.50', '172.30.0.51', 'fd00::50']).map((address) => [address, one(['node-1', 'node-2'])]),
    );
    const view = viewOf(gateways, holders);
    for (let i = 0; i < 20; i++) {
      const [source, destination] = [one(sources as [string]), one(destinations as [string])];
      const decision = decideEgress(view, { source, destination });
      const text =
        decision.kind === 'stays'
          ? 'stays'
          : decision.kind === 'waits'
            ? `waits ${decision.gateway}`
            : `leaves ${decision.gateway} ${decision.node} ${decision.address}`;
      assert.equal(text, slowly(gateways, view, source, destination), `${source} → ${destination}`);
      counts.set(decision.kind, (counts.get(decision.kind) ?? 0) + 1);
    }
  }
  for (const kind of ['stays', 'waits', 'leaves']) assert.ok((counts.get(kind) ?? 0) > 500, kind);
});

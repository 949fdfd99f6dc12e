import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { afterEach, beforeEach, test } from 'node:test';
import { pause, systemClock } from '../../lib/clock.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { createNetns, openNetns, removeNetns } from '../netns.ts';
import { addAddress, addAddresses, deleteAddress, listAddresses } from './addresses.ts';
import { type NetworkEvent, watchNetwork } from './events.ts';
import {
  addLink,
  deleteLink,
  deleteLinkGroup,
  findLink,
  getLink,
  listLinks,
  openRouteSocket,
  setBridgePort,
  setLink,
} from './links.ts';
import {
  deleteForwardingEntry,
  deleteNeighbour,
  listForwardingEntries,
  listNeighbours,
  replaceForwardingEntry,
  replaceNeighbour,
} from './neighbours.ts';
import { addRoute, deleteRoute, findRoute, listRoutes, type Route, replaceRoute } from './routes.ts';
import { addRule, deleteRule, listRules, type RoutingRule } from './rules.ts';

let here = '';
let there = '';
let socket: NetlinkSocket;

beforeEach(() => {
  const id = randomBytes(3).toString('hex');
  here = `flt-${id}-a`;
  there = `flt-${id}-b`;
  createNetns(here);
  createNetns(there);
  socket = openRouteSocket(here);
});

afterEach(() => {
  socket.close();
  removeNetns(here);
  removeNetns(there);
});

// biome-ignore lint/suspicious/noExplicitAny: the JSON of external tools has no types here
const json = (tool: string, netns: string, ...args: string[]): any =>
  JSON.parse(execFileSync(tool, ['-n', netns, '-j', '-d', ...args], { encoding: 'utf8' }) || '[]');

function veth(name: string, up = true): number {
  const fd = openNetns(there);
  try {
    addLink(socket, { kind: 'veth', name, up, peer: { name: `${name}p`, netns: { fd } } });
  } finally {
    closeSync(fd);
  }
  using other = openRouteSocket(there);
  setLink(other, getLink(other, `${name}p`).index, { up });
  return getLink(socket, name).index;
}

test('a veth pair: one end here, the other with name, MTU and MAC in another namespace, in one request', () => {
  const fd = openNetns(there);
  try {
    addLink(socket, {
      kind: 'veth',
      name: 'flpabc',
      mtu: 1400,
      up: true,
      peer: { name: 'eth0', netns: { fd }, mtu: 1400, mac: '02:00:00:00:00:07' },
    });
  } finally {
    closeSync(fd);
  }
  using other = openRouteSocket(there);
  setLink(other, getLink(other, 'eth0').index, { up: true });
  const [mine] = json('ip', here, 'link', 'show', 'flpabc');
  assert.equal(mine.linkinfo.info_kind, 'veth');
  assert.equal(mine.mtu, 1400);
  assert.ok(mine.flags.includes('UP'));
  const [peer] = json('ip', there, 'link', 'show', 'eth0');
  assert.equal(peer.address, '02:00:00:00:00:07');
  assert.equal(peer.mtu, 1400);
  assert.ok(peer.flags.includes('LOWER_UP'));
  const link = getLink(socket, 'flpabc');
  assert.equal(link.index, mine.ifindex);
  assert.equal(link.mac, mine.address);
  assert.deepEqual(
    [link.kind, link.mtu, link.up, link.carrier, link.link],
    ['veth', 1400, true, true, peer.ifindex],
  );
});

test('a bridge with a port in hairpin mode', () => {
  addLink(socket, {
    kind: 'bridge',
    name: 'fl0',
    mac: '02:00:00:00:00:01',
    up: true,
    stp: false,
    multicastSnooping: false,
  });
  const bridge = getLink(socket, 'fl0');
  const port = veth('port');
  setLink(socket, port, { master: bridge.index });
  setBridgePort(socket, port, { hairpin: true, learning: false });
  const [shown] = json('ip', here, 'link', 'show', 'port');
  assert.equal(shown.master, 'fl0');
  assert.equal(shown.linkinfo.info_slave_data.hairpin, true);
  assert.equal(shown.linkinfo.info_slave_data.learning, false);
  assert.equal(json('ip', here, 'link', 'show', 'fl0')[0].linkinfo.info_data.mcast_snooping, 0);
  assert.equal(getLink(socket, 'port').master, bridge.index);
  setLink(socket, port, { master: 0 });
  assert.equal(getLink(socket, 'port').master, null);
});

for (const [family, local] of [
  ['IPv4', '192.0.2.1'],
  ['IPv6', '2001:db8::1'],
] as const) {
  test(`a VXLAN device over ${family}, without learning`, () => {
    const device = veth('eth0');
    addLink(socket, {
      kind: 'vxlan',
      name: 'fl.vxlan',
      id: 4242,
      local,
      port: 4789,
      learning: false,
      device,
      mtu: 1400,
      up: true,
    });
    const [shown] = json('ip', here, 'link', 'show', 'fl.vxlan');
    const data = shown.linkinfo.info_data;
    assert.deepEqual([data.id, data.port, data.learning, data.link], [4242, 4789, false, 'eth0']);
    assert.equal(data.local ?? data.local6, local);
    assert.deepEqual(getLink(socket, 'fl.vxlan').vxlan, {
      id: 4242,
      local,
      port: 4789,
      learning: false,
      device,
    });
    const remote = family === 'IPv4' ? '192.0.2.9' : '2001:db8::9';
    const vxlan = getLink(socket, 'fl.vxlan').index;
    replaceForwardingEntry(socket, { device: vxlan, mac: '02:00:00:00:00:09', remote });
    replaceForwardingEntry(socket, { device: vxlan, mac: '02:00:00:00:00:09', remote });
    const entries = json('bridge', here, 'fdb', 'show', 'dev', 'fl.vxlan');
    assert.deepEqual(
      entries.map((entry: { mac: string; dst: string; state: string }) => [
        entry.mac,
        entry.dst,
        entry.state,
      ]),
      [['02:00:00:00:00:09', remote, 'permanent']],
    );
    const [entry] = listForwardingEntries(socket, vxlan);
    assert.deepEqual([entry?.mac, entry?.remote, entry?.permanent], ['02:00:00:00:00:09', remote, true]);
    assert.equal(deleteForwardingEntry(socket, { device: vxlan, mac: '02:00:00:00:00:09', remote }), true);
    assert.equal(deleteForwardingEntry(socket, { device: vxlan, mac: '02:00:00:00:00:09', remote }), false);
    assert.deepEqual(listForwardingEntries(socket, vxlan), []);
  });
}

test('a link can be renamed, set down, moved and deleted; a missing one is an error', () => {
  const index = veth('first');
  setLink(socket, index, { up: false });
  setLink(socket, index, { name: 'second', mtu: 1280 });
  assert.deepEqual(
    listLinks(socket)
      .map((link) => link.name)
      .sort(),
    ['lo', 'second'],
  );
  assert.equal(getLink(socket, index).mtu, 1280);
  const fd = openNetns(there);
  setLink(socket, index, { netns: { fd } });
  closeSync(fd);
  assert.equal(findLink(socket, 'second'), null);
  assert.equal(deleteLink(socket, 'second'), false);
  assert.throws(() => getLink(socket, 'second'), { code: 'ENODEV', message: /second/ });
  assert.throws(() => setLink(socket, 4711, { mtu: 1 }), { code: 'ENODEV' });
  assert.throws(() => veth('a name too long for it'), { code: 'EINVAL' });
  veth('third');
  assert.throws(() => veth('third'), { code: 'EEXIST', message: /add veth third: EEXIST/ });
  assert.equal(deleteLink(socket, 'third'), true);
});

test('a group of links is deleted at once, and no other', async () => {
  for (const name of ['one', 'two', 'three']) veth(name);
  for (const name of ['one', 'two']) setLink(socket, getLink(socket, name).index, { group: 0x1234 });
  const deleting = deleteLinkGroup(socket, 0x1234);
  assert.throws(() => listLinks(socket), { code: 'EBUSY' });
  await deleting;
  assert.deepEqual(
    listLinks(socket)
      .map((link) => link.name)
      .sort(),
    ['lo', 'three'],
  );
  await deleteLinkGroup(socket, 0x1234);
});

test('addresses are usable at once, listed and removed', () => {
  const device = veth('eth0');
  addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
  addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
  addAddress(socket, { device, address: 'fd00::1', prefix: 64 });
  addAddress(socket, { device, address: 'fd00::1', prefix: 64 });
  addAddress(socket, { device, address: '10.9.9.9', prefix: 32, prefixRoute: false });
  const [shown] = json('ip', here, 'address', 'show', 'eth0');
  const info = shown.addr_info.filter((entry: { scope: string }) => entry.scope === 'global');
  assert.deepEqual(
    info.map((entry: { local: string; prefixlen: number }) => `${entry.local}/${entry.prefixlen}`),
    ['10.0.0.1/24', '10.9.9.9/32', 'fd00::1/64'],
  );
  assert.equal(info[0].broadcast, '10.0.0.255');
  assert.equal(info[2].tentative, undefined);
  const listed = listAddresses(socket, { device });
  assert.deepEqual(
    listed
      .filter((entry) => entry.scope === 0)
      .map((entry) => [entry.address, entry.prefix, entry.tentative]),
    [
      ['10.0.0.1', 24, false],
      ['10.9.9.9', 32, false],
      ['fd00::1', 64, false],
    ],
  );
  assert.deepEqual(
    listAddresses(socket, { family: 'ipv4', device }).map((entry) => entry.address),
    ['10.0.0.1', '10.9.9.9'],
  );
  assert.equal(deleteAddress(socket, { device, address: 'fd00::1', prefix: 64 }), true);
  assert.equal(deleteAddress(socket, { device, address: 'fd00::1', prefix: 64 }), false);
  assert.throws(() => addAddress(socket, { device, address: '10.0.0.300', prefix: 24 }), { code: 'EINVAL' });
});

test('many addresses are added by one call; existing ones are not an error', async () => {
  const device = veth('eth0');
  addAddress(socket, { device, address: '10.0.1.7', prefix: 32 });
  const many = Array.from({ length: 600 }, (_, i) => ({
    device,
    address: i % 2 === 0 ? `10.0.${i >> 8}.${i & 255}` : `fd00::${i.toString(16)}`,
    prefix: i % 2 === 0 ? 32 : 128,
    scope: 254,
  }));
  await addAddresses(socket, many);
  await addAddresses(socket, [...many, { device, address: '10.0.9.9', prefix: 32 }]);
  await addAddresses(socket, []);
  const listed = new Set(listAddresses(socket, { device }).map(({ address }) => address));
  assert.deepEqual(
    many.filter(({ address }) => !listed.has(address)),
    [],
  );
  assert.ok(listed.has('10.0.9.9'));
  await assert.rejects(addAddresses(socket, [{ device: 999_999, address: '10.0.9.10', prefix: 32 }]), {
    code: 'ENODEV',
    message: /add address 10\.0\.9\.10\/32/,
  });
});

const routes: [string, (device: number) => Route, string[]][] = [
  [
    'to a link',
    (device) => ({ destination: '10.1.0.0/16', device }),
    ['10.1.0.0/16', 'dev eth0', 'scope link'],
  ],
  [
    'by a next hop',
    () => ({ destination: '10.2.0.0/16', via: '10.0.0.2', protocol: 70 }),
    ['10.2.0.0/16 via 10.0.0.2', 'proto 70'],
  ],
  ['the default route', () => ({ destination: '0.0.0.0/0', via: '10.0.0.2' }), ['default via 10.0.0.2']],
  [
    'with source, MTU and metric',
    () => ({ destination: '10.3.0.0/16', via: '10.0.0.2', source: '10.0.0.1', mtu: 1400, metric: 7 }),
    ['src 10.0.0.1', 'metric 7', 'mtu 1400'],
  ],
  [
    'on-link next hop',
    (device) => ({ destination: '10.4.0.0/16', via: '192.0.2.77', device, onlink: true }),
    ['via 192.0.2.77', 'onlink'],
  ],
  ['blackhole', () => ({ destination: '10.5.0.0/16', type: 'blackhole' }), ['blackhole 10.5.0.0/16']],
  [
    'IPv6 by a next hop',
    () => ({ destination: 'fd01::/64', via: 'fd00::2', mtu: 1400 }),
    ['fd01::/64 via fd00::2', 'mtu 1400'],
  ],
  ['IPv6 default route', () => ({ destination: '::/0', via: 'fd00::2' }), ['default via fd00::2']],
  [
    'IPv6 on-link next hop',
    (device) => ({ destination: 'fd02::/64', via: 'fd99::1', device, onlink: true }),
    ['via fd99::1', 'onlink'],
  ],
  ['IPv6 unreachable', () => ({ destination: 'fd03::/64', type: 'unreachable' }), ['unreachable fd03::/64']],
];
for (const [name, make, expected] of routes) {
  test(`a route: ${name}`, () => {
    const device = veth('eth0');
    addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
    addAddress(socket, { device, address: 'fd00::1', prefix: 64 });
    const route = make(device);
    addRoute(socket, route);
    const v6 = route.destination.includes(':') ? ['-6'] : [];
    const shown = () => execFileSync('ip', ['-n', here, ...v6, '-d', 'route', 'show'], { encoding: 'utf8' });
    for (const part of expected) assert.ok(shown().includes(part), `${part} in\n${shown()}`);
    const found = listRoutes(socket).find((other) => other.destination === route.destination);
    for (const [key, value] of Object.entries(route)) assert.equal(found?.[key as keyof Route], value, key);
    assert.throws(() => addRoute(socket, route), {
      code: 'EEXIST',
      message: new RegExp(`add route ${route.destination}`),
    });
    replaceRoute(socket, route);
    assert.equal(deleteRoute(socket, route), true);
    assert.equal(deleteRoute(socket, route), false);
  });
}

test('the route to an address: to the node itself, through a next hop, to nowhere', async () => {
  const device = veth('eth0');
  addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
  addAddress(socket, { device, address: 'fd00::1', prefix: 64 });
  addRoute(socket, { destination: '10.2.0.0/16', via: '10.0.0.2' });
  addRoute(socket, { destination: '10.3.0.0/16', type: 'blackhole' });
  addRoute(socket, { destination: 'fd03::/64', type: 'unreachable' });
  assert.equal(findRoute(socket, '10.0.0.1')?.type, 'local');
  // The kernel makes this route a moment later (addrconf_dad_work).
  for (let i = 0; i < 1000 && findRoute(socket, 'fd00::1')?.type !== 'local'; i++)
    await pause(systemClock, 10);
  assert.equal(findRoute(socket, 'fd00::1')?.type, 'local');
  assert.equal(findRoute(socket, '10.2.0.9')?.via, '10.0.0.2');
  assert.equal(findRoute(socket, 'fd00::2')?.device, device);
  for (const nowhere of ['10.3.0.9', '198.51.100.1', 'fd03::9', '2001:db8::1']) {
    assert.ok(['unreachable', undefined].includes(findRoute(socket, nowhere)?.type), nowhere);
  }
  assert.throws(() => findRoute(socket, 'nowhere'), { code: 'EINVAL' });
});

test('a route of another table is seen only there; replacing changes the next hop in place', () => {
  const device = veth('eth0');
  addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
  addRoute(socket, { destination: '10.2.0.0/16', via: '10.0.0.2', table: 1000 });
  assert.equal(listRoutes(socket, { table: 1000 }).length, 1);
  assert.ok(!listRoutes(socket).some((route) => route.destination === '10.2.0.0/16'));
  replaceRoute(socket, { destination: '10.2.0.0/16', via: '10.0.0.3', table: 1000 });
  assert.deepEqual(
    listRoutes(socket, { table: 1000 }).map((route) => route.via),
    ['10.0.0.3'],
  );
  assert.deepEqual(listRoutes(socket, { table: 4000, family: 'ipv4' }), []);
});

test('an unreachable next hop is refused with the kernel’s message', () => {
  veth('eth0');
  assert.throws(() => addRoute(socket, { destination: '10.2.0.0/16', via: '10.0.0.2' }), {
    code: 'ENETUNREACH',
    message: /add route 10\.2\.0\.0\/16 via 10\.0\.0\.2: ENETUNREACH \(Nexthop has invalid gateway\)/,
  });
  assert.throws(() => addRoute(socket, { destination: '10.2.0.0/16', via: 'fd00::1' }), {
    code: 'EINVAL',
    message: /via/,
  });
});

test('routing rules', () => {
  const rule: RoutingRule = {
    family: 'ipv4',
    priority: 1000,
    table: 100,
    mark: 0x4000,
    markMask: 0x4000,
    from: '10.1.0.0/16',
    incoming: 'eth0',
  };
  addRule(socket, rule);
  addRule(socket, rule);
  const shown = json('ip', here, 'rule', 'show').filter(
    (entry: { priority: number }) => entry.priority === 1000,
  );
  assert.equal(shown.length, 1);
  assert.deepEqual(
    [shown[0].table, shown[0].fwmark, shown[0].src, shown[0].iif],
    ['100', '0x4000', '10.1.0.0', 'eth0'],
  );
  assert.deepEqual(
    listRules(socket, 'ipv4').find((other) => other.priority === 1000),
    rule,
  );
  addRule(socket, { family: 'ipv6', priority: 5, table: 254, suppressPrefixLength: 0 });
  assert.equal(listRules(socket, 'ipv6').find((other) => other.priority === 5)?.suppressPrefixLength, 0);
  assert.equal(deleteRule(socket, rule), true);
  assert.equal(deleteRule(socket, rule), false);
});

test('permanent neighbours', () => {
  const device = veth('eth0');
  for (const address of ['10.0.0.9', 'fd00::9']) {
    replaceNeighbour(socket, { device, address, mac: '02:00:00:00:00:08' });
    replaceNeighbour(socket, { device, address, mac: '02:00:00:00:00:09' });
    const [shown] = json('ip', here, 'neighbour', 'show', address);
    assert.deepEqual([shown.dst, shown.lladdr, shown.state], [address, '02:00:00:00:00:09', ['PERMANENT']]);
    const listed = listNeighbours(socket, { device }).filter((entry) => entry.permanent);
    assert.deepEqual(
      listed.map((entry) => [entry.address, entry.mac]),
      [[address, '02:00:00:00:00:09']],
    );
    assert.equal(deleteNeighbour(socket, { device, address }), true);
    assert.equal(deleteNeighbour(socket, { device, address }), false);
  }
});

test('changes are reported when they happen', async () => {
  const seen: string[] = [];
  let done = () => {};
  const finished = new Promise<void>((resolve) => {
    done = resolve;
  });
  const watch = watchNetwork(
    ['link', 'address', 'route'],
    (event: NetworkEvent) => {
      if (event.kind === 'link' && event.link.name === 'eth0') seen.push(event.gone ? 'link gone' : 'link');
      if (event.kind === 'address') seen.push(`address ${event.address.address}${event.gone ? ' gone' : ''}`);
      if (event.kind === 'route' && event.route.table === 254) seen.push(`route ${event.route.destination}`);
      if (seen.includes('link gone')) done();
    },
    here,
  );
  const keepAlive = setTimeout(() => {}, 60_000);
  try {
    const device = veth('eth0');
    addAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
    deleteAddress(socket, { device, address: '10.0.0.1', prefix: 24 });
    deleteLink(socket, device);
    await finished;
  } finally {
    clearTimeout(keepAlive);
    watch.close();
  }
  for (const expected of [
    'link',
    'address 10.0.0.1',
    'address 10.0.0.1 gone',
    'route 10.0.0.0/24',
    'link gone',
  ]) {
    assert.ok(seen.includes(expected), `${expected} in ${seen}`);
  }
});

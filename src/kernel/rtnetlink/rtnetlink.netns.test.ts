import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { afterEach, beforeEach, test } from 'node:test';
import { type Cidr, parseCidr } from '../../lib/address.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { createNetns, openNetns, removeNetns } from '../netns.ts';
import { readSysctl, writeSysctl } from '../sysctl.ts';
import { addAddress, deleteAddress, listAddresses } from './address.ts';
import {
  createBridge,
  createVeth,
  createVxlan,
  deleteLink,
  getLink,
  listLinks,
  openRouteSocket,
  requireLink,
  setBridgePort,
  setLink,
} from './link.ts';
import {
  deleteForwarding,
  listForwarding,
  listNeighbours,
  replaceForwarding,
  replaceNeighbour,
} from './neighbour.ts';
import { deleteRoute, listRoutes, replaceRoute } from './route.ts';

const id = randomBytes(3).toString('hex');
const here = `flt-${id}-a`;
const there = `flt-${id}-b`;
let socket: NetlinkSocket;

beforeEach(() => {
  createNetns(here);
  createNetns(there);
  socket = openRouteSocket(here);
});

afterEach(() => {
  socket.close();
  removeNetns(here);
  removeNetns(there);
});

interface IpLink {
  ifname: string;
  mtu: number;
  address: string;
  flags: string[];
  master?: string;
  linkinfo?: {
    info_kind?: string;
    info_data?: Record<string, unknown>;
    info_slave_data?: Record<string, unknown>;
  };
}

const ip = <T>(netns: string, ...args: string[]): T =>
  JSON.parse(execFileSync('ip', ['-n', netns, '-d', '-j', ...args], { encoding: 'utf8' })) as T;
const link = (netns: string, name: string): IpLink => {
  const [found] = ip<IpLink[]>(netns, 'link', 'show', 'dev', name);
  assert.ok(found);
  return found;
};

test('a bridge as ip shows it', () => {
  createBridge(socket, { name: 'br0', address: '02:00:00:00:00:01', mtu: 1400, up: true });
  const seen = link(here, 'br0');
  assert.equal(seen.address, '02:00:00:00:00:01');
  assert.equal(seen.mtu, 1400);
  assert.ok(seen.flags.includes('UP'));
  assert.equal(seen.linkinfo?.info_data?.['stp_state'], 0);
  assert.equal(seen.linkinfo?.info_data?.['mcast_snooping'], 0);
  const own = requireLink(socket, 'br0');
  assert.deepEqual([own.kind, own.up, own.mtu, own.address], ['bridge', true, 1400, '02:00:00:00:00:01']);
  assert.throws(() => createBridge(socket, { name: 'br0' }), { code: 'EEXIST', object: 'bridge br0' });
  assert.throws(() => createBridge(socket, { name: 'a name of more than 15' }), { code: 'EINVAL' });
});

test('a veth pair across namespaces, on a bridge, with hairpin', () => {
  createBridge(socket, { name: 'br0' });
  const bridge = requireLink(socket, 'br0');
  const netns = openNetns(there);
  createVeth(socket, {
    name: 'v0',
    mtu: 1420,
    master: bridge.index,
    up: true,
    peer: { name: 'eth0', netns, address: '02:00:00:00:00:07' },
  });
  closeSync(netns);
  setBridgePort(socket, requireLink(socket, 'v0').index, { hairpin: true });
  const seen = link(here, 'v0');
  assert.equal(seen.master, 'br0');
  assert.equal(seen.linkinfo?.info_slave_data?.['hairpin'], true);
  const peer = link(there, 'eth0');
  assert.equal(peer.address, '02:00:00:00:00:07');
  assert.equal(peer.mtu, 1420);
  setLink(socket, requireLink(socket, 'v0').index, { master: 0, up: false });
  assert.equal(link(here, 'v0').master, undefined);
  assert.equal(deleteLink(socket, 'v0'), true);
  assert.equal(deleteLink(socket, 'v0'), false);
  assert.equal(getLink(socket, 'v0'), null);
});

test('a VXLAN device that does not learn, and its entries', () => {
  createVeth(socket, { name: 'up0', up: true, peer: { name: 'up1' } });
  addAddress(socket, { index: requireLink(socket, 'up0').index, address: '192.0.2.1', prefix: 24 });
  createVxlan(socket, {
    name: 'vx0',
    id: 77,
    local: '192.0.2.1',
    parent: requireLink(socket, 'up0').index,
    port: 8472,
    mtu: 1430,
    up: true,
  });
  const data = link(here, 'vx0').linkinfo?.info_data;
  assert.deepEqual(
    [data?.['id'], data?.['local'], data?.['port'], data?.['learning'], data?.['link']],
    [77, '192.0.2.1', 8472, false, 'up0'],
  );
  const { index } = requireLink(socket, 'vx0');
  const entry = { index, hardware: '02:00:00:00:00:09', remote: '192.0.2.9' };
  replaceForwarding(socket, entry);
  replaceForwarding(socket, { ...entry, remote: '192.0.2.10' });
  assert.deepEqual(listForwarding(socket, index), [{ ...entry, remote: '192.0.2.10' }]);
  const shown = execFileSync('bridge', ['-n', here, 'fdb', 'show', 'dev', 'vx0'], { encoding: 'utf8' });
  assert.match(shown, /02:00:00:00:00:09 dst 192\.0\.2\.10 self permanent/);
  replaceNeighbour(socket, { index, address: '10.1.0.1', hardware: '02:00:00:00:00:09' });
  assert.deepEqual(listNeighbours(socket, index), [
    { index, address: '10.1.0.1', hardware: '02:00:00:00:00:09' },
  ]);
  assert.equal(deleteForwarding(socket, { ...entry, remote: '192.0.2.10' }), true);
  assert.deepEqual(listForwarding(socket, index), []);
});

test('addresses of both families, at once usable', () => {
  createBridge(socket, { name: 'br0', up: true });
  const { index } = requireLink(socket, 'br0');
  for (let twice = 0; twice < 2; twice++) {
    addAddress(socket, { index, address: '10.1.0.1', prefix: 24 });
    addAddress(socket, { index, address: 'fd00:1::1', prefix: 64 });
  }
  const shown = ip<{ addr_info: { local: string; prefixlen: number; nodad?: boolean }[] }[]>(
    here,
    'addr',
    'show',
    'dev',
    'br0',
  );
  const v6 = shown[0]?.addr_info.find((info) => info.local === 'fd00:1::1');
  assert.equal(v6?.prefixlen, 64);
  assert.equal(v6?.nodad, true);
  const own = listAddresses(socket).filter((a) => a.index === index && !a.address.startsWith('fe80'));
  assert.deepEqual(own, [
    { index, address: '10.1.0.1', prefix: 24 },
    { index, address: 'fd00:1::1', prefix: 64 },
  ]);
  assert.equal(deleteAddress(socket, { index, address: '10.1.0.1', prefix: 24 }), true);
  assert.equal(deleteAddress(socket, { index, address: '10.1.0.1', prefix: 24 }), false);
});

test('routes are replaced, listed and removed', () => {
  createBridge(socket, { name: 'br0', up: true });
  const { index } = requireLink(socket, 'br0');
  addAddress(socket, { index, address: '192.0.2.1', prefix: 24 });
  addAddress(socket, { index, address: 'fd00:1::1', prefix: 64 });
  const destination = cidr('10.244.3.0/24');
  replaceRoute(socket, { destination, via: '192.0.2.3', index });
  replaceRoute(socket, { destination, via: '192.0.2.4', index });
  replaceRoute(socket, { destination: cidr('fd00:10:244:3::/64'), via: 'fd00:1::4', index });
  replaceRoute(socket, { destination: cidr('10.244.4.0/24'), via: '10.244.4.0', index, onlink: true });
  const shown = ip<{ dst: string; gateway?: string; flags: string[] }[]>(here, 'route', 'show');
  assert.equal(shown.find((route) => route.dst === '10.244.3.0/24')?.gateway, '192.0.2.4');
  assert.deepEqual(shown.find((route) => route.dst === '10.244.4.0/24')?.flags, ['onlink']);
  const own = listRoutes(socket).filter((route) => route.protocol === 0x46);
  assert.deepEqual(own.map((route) => [route.destination.text, route.via]).sort(), [
    ['10.244.3.0/24', '192.0.2.4'],
    ['10.244.4.0/24', '10.244.4.0'],
    ['fd00:10:244:3::/64', 'fd00:1::4'],
  ]);
  assert.equal(deleteRoute(socket, { destination, via: null, index }), true);
  assert.equal(deleteRoute(socket, { destination, via: null, index }), false);
  assert.throws(() => replaceRoute(socket, { destination, via: '203.0.113.1', index }), {
    code: 'ENETUNREACH',
    message: /route 10\.244\.3\.0\/24 via 203\.0\.113\.1: ENETUNREACH \(.*[Nn]exthop.*\)/,
  });
});

test('link events arrive', async () => {
  const RTNLGRP_LINK = 1;
  const events = openRouteSocket(here);
  try {
    const seen = new Promise<void>((resolve) => {
      events.subscribe(
        [RTNLGRP_LINK],
        (message) => message.type === 16 && resolve(),
        () => {},
      );
    });
    createBridge(socket, { name: 'br0' });
    await seen;
  } finally {
    events.close();
  }
});

test('many links are listed whole', () => {
  for (let i = 0; i < 60; i++) createVeth(socket, { name: `a${i}`, peer: { name: `b${i}` } });
  assert.equal(listLinks(socket).filter((one) => one.kind === 'veth').length, 120);
});

test('settings are those of the namespace', () => {
  const name = 'net.ipv4.ip_forward';
  assert.equal(writeSysctl(name, 1, here), true);
  assert.equal(readSysctl(name, here), '1');
  assert.equal(readSysctl(name, there), '0');
  assert.equal(readSysctl('net.ipv4.no_such_setting', here), null);
  assert.equal(writeSysctl('net.ipv4.no_such_setting', 1, here), false);
});

function cidr(text: string): Cidr {
  const parsed = parseCidr(text);
  assert.ok(parsed);
  return parsed;
}

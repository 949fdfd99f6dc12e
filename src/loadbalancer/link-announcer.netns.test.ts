import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import { libc } from '../kernel/libc.ts';
import { bindUdpIn, createNetns, openNetns, removeNetns, socketAddress } from '../kernel/netns.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { addLink, getLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { deleteNeighbour, listNeighbours } from '../kernel/rtnetlink/neighbours.ts';
import { writeSysctls } from '../kernel/sysctl.ts';
import { systemClock } from '../lib/clock.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { type LinkAnnouncer, openLinkAnnouncer } from './link-announcer.ts';

// linux/neighbour.h
const NUD_REACHABLE = 0x02;
const NUD_FAILED = 0x20;

const prefix = `flt-${randomBytes(3).toString('hex')}`;
const netns = (host: string) => `${prefix}-${host}`;
const client = netns('client');
const ADDRESSES = ['10.77.0.200', 'fd77::c8'];

interface Node {
  readonly announcer: LinkAnnouncer;
  readonly mac: string;
  /** The result of `mayAnnounce`. */
  allowed: boolean;
  readonly conflicts: string[];
}
let a: Node;
let b: Node;

before(() => {
  createNetns(netns('wire'));
  using wire = openRouteSocket(netns('wire'));
  addLink(wire, { kind: 'bridge', name: 'br', stp: false, multicastSnooping: false, up: true });
  const hosts = ['a', 'b', 'client'];
  for (const [i, host] of hosts.entries()) {
    createNetns(netns(host));
    writeSysctls({ 'net.ipv6.conf.all.accept_dad': 0, 'net.ipv6.conf.default.accept_dad': 0 }, netns(host));
    const target = openNetns(netns(host));
    const peer = { name: 'eth0', netns: { fd: target } };
    addLink(wire, { kind: 'veth', name: host, master: getLink(wire, 'br').index, up: true, peer });
    closeSync(target);
    using inside = openRouteSocket(netns(host));
    const device = getLink(inside, 'eth0').index;
    setLink(inside, device, { up: true });
    addAddress(inside, { device, address: `10.77.0.${i + 1}`, prefix: 24 });
    addAddress(inside, { device, address: `fd77::${i + 1}`, prefix: 64 });
  }
  a = openNode('a');
  b = openNode('b');
});
after(() => {
  for (const node of [a, b]) node?.announcer.close();
  for (const host of ['a', 'b', 'client', 'wire']) removeNetns(netns(host));
});
beforeEach(() => {
  using socket = openRouteSocket(client);
  const device = getLink(socket, 'eth0').index;
  for (const address of ADDRESSES) {
    for (const node of [a, b]) node.announcer.withdraw(address);
    deleteNeighbour(socket, { device, address });
  }
  for (const node of [a, b]) {
    node.allowed = true;
    node.conflicts.length = 0;
  }
});

function openNode(host: string): Node {
  using socket = openRouteSocket(netns(host));
  const device = getLink(socket, 'eth0');
  const node = { allowed: true, conflicts: [] as string[], mac: device.mac ?? '' };
  const announcer = openLinkAnnouncer({
    device,
    netns: netns(host),
    clock: systemClock,
    mayAnnounce: () => node.allowed,
    onConflict: (address, mac) => node.conflicts.push(`${address} ${mac}`),
    onError: (error) => assert.fail(error),
  });
  return Object.assign(node, { announcer });
}

/** Makes the client's kernel resolve the address, by sending there. */
function touch(address: string): void {
  const fd = bindUdpIn(client, address.includes(':') ? '::' : '0.0.0.0', 0);
  const to = socketAddress(address, 9);
  libc().connect(fd, to, to.length);
  libc().send(fd, Uint8Array.of(1), 1, 0);
  libc().close(fd);
}

function known(address: string): { mac: string | null; state: number } | undefined {
  using socket = openRouteSocket(client);
  return listNeighbours(socket).find((entry) => entry.address === address);
}

for (const address of ADDRESSES) {
  test(`${address}: only the announcing node answers a host’s request`, async () => {
    a.announcer.announce(address);
    touch(address);
    await eventually(() => known(address)?.mac === a.mac);
    assert.deepEqual([...a.announcer.addresses], [address]);
    assert.deepEqual([...b.announcer.addresses], []);
  });

  test(`${address}: no host answers for an address that no node announces`, { timeout: 20_000 }, async () => {
    touch(address);
    await eventually(() => (known(address)?.state ?? 0) === NUD_FAILED);
  });

  test(`${address}: a node that may no longer announce does not answer`, { timeout: 20_000 }, async () => {
    a.announcer.announce(address);
    a.allowed = false;
    touch(address);
    await eventually(() => (known(address)?.state ?? 0) === NUD_FAILED);
  });

  test(`${address}: a new owner updates hosts without being asked`, async () => {
    a.announcer.announce(address);
    touch(address);
    await eventually(() => known(address)?.mac === a.mac);
    a.announcer.withdraw(address);
    b.announcer.announce(address);
    await eventually(() => known(address)?.mac === b.mac);
  });

  test(`${address}: a host that verifies its entry (unicast request) is answered`, {
    timeout: 30_000,
  }, async () => {
    writeSysctls(
      {
        'net.ipv4.neigh.eth0.base_reachable_time_ms': 200,
        'net.ipv4.neigh.eth0.delay_first_probe_time': 1,
        'net.ipv6.neigh.eth0.base_reachable_time_ms': 200,
        'net.ipv6.neigh.eth0.delay_first_probe_time': 1,
      },
      client,
    );
    a.announcer.announce(address);
    touch(address);
    await eventually(() => known(address)?.mac === a.mac);
    await eventually(() => (known(address)?.state ?? NUD_REACHABLE) !== NUD_REACHABLE);
    touch(address);
    await eventually(() => known(address)?.state === NUD_REACHABLE);
    assert.equal(known(address)?.mac, a.mac);
  });

  test(`${address}: another host that claims the same address is detected`, { timeout: 20_000 }, async () => {
    a.announcer.announce(address);
    b.announcer.announce(address);
    await eventually(() => a.conflicts.includes(`${address} ${b.mac}`));
    await eventually(() => b.conflicts.includes(`${address} ${a.mac}`));
  });
}

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { describe, test } from 'node:test';
import { createNetns, listenTcpIn, localPort, removeNetns } from '../kernel/netns.ts';
import type { IPFamily } from '../lib/address.ts';
import { createProbeSockets } from './probe-sockets.ts';

const NOON = 1_800_000_000_000;

describe('sockets of probes', () => {
  /** Opens `count` sockets in each of two new namespaces and returns their ports. */
  function portsOf(
    count: number,
    { now = NOON, used = [] }: { readonly now?: number; readonly used?: readonly number[] } = {},
  ): { readonly first: number[]; readonly second: number[] } {
    const id = randomBytes(3).toString('hex');
    const [first, second] = [`flt-${id}-a`, `flt-${id}-b`];
    const open: number[] = [];
    const sockets = createProbeSockets(now);
    const ports = (netns: string) =>
      Array.from({ length: count }, (_, index) => {
        const protocol = index % 2 === 0 ? 'TCP' : 'UDP';
        const family: IPFamily = index % 4 < 2 ? 'ipv4' : 'ipv6';
        const fd = sockets.open({ netns, controlGroup: null }, protocol, family);
        open.push(fd);
        return localPort(fd);
      });
    try {
      for (const netns of [first, second]) createNetns(netns);
      for (const port of used) open.push(listenTcpIn(first, '0.0.0.0', port));
      return { first: ports(first), second: ports(second) };
    } finally {
      sockets.close();
      for (const fd of open) closeSync(fd);
      for (const netns of [first, second]) removeNetns(netns);
    }
  }

  test('no two of a namespace have the same port, whatever their protocol and family', () => {
    const { first } = portsOf(200);
    assert.equal(new Set(first).size, 200);
  });

  test('namespaces do not take ports from each other', () => {
    const { first, second } = portsOf(8);
    assert.deepEqual(first, second);
  });

  test('ports on which other programs listen are left out', () => {
    const [wanted = 0] = portsOf(1).first;
    assert.deepEqual(portsOf(1, { used: [wanted] }).first, [wanted + 1]);
  });

  test('a run that follows does not begin with the ports of the run before', () => {
    const { first } = portsOf(500);
    const next = portsOf(500, { now: NOON + 10_000 }).first;
    assert.deepEqual(
      next.filter((port) => first.includes(port)),
      [],
    );
  });

  test('no port is one that the kernel chooses, or a node port', () => {
    for (const port of portsOf(500, { now: NOON + 199_000 }).first)
      assert.ok(port >= 10_000 && port < 30_000, String(port));
  });
});

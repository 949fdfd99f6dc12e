import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, Socket } from 'node:net';
import { test } from 'node:test';
import { hasCode } from '../lib/errors.ts';
import { NETLINK_SOCK_DIAG, NetlinkSocket } from './netlink/socket.ts';
import { createNetns, listenTcpIn, localPort, openTcpIn, removeNetns } from './netns.ts';
import { getLink, openRouteSocket, setLink } from './rtnetlink/links.ts';
import { destroySocket, listSockets, TCP_STATE } from './sock-diag.ts';

for (const [family, address] of [
  ['ipv4', '127.0.0.1'],
  ['ipv6', '::1'],
] as const) {
  test(`connections are listed and destroyed (${family})`, async (t) => {
    const netns = `flt-${randomBytes(3).toString('hex')}`;
    createNetns(netns);
    using _ = { [Symbol.dispose]: () => void removeNetns(netns) };
    using route = openRouteSocket(netns);
    setLink(route, getLink(route, 'lo').index, { up: true });
    const fd = listenTcpIn(netns, address, 0);
    const port = localPort(fd);
    const server = createServer((socket) => socket.on('error', () => {}));
    server.listen({ fd });
    const client = new Socket({ fd: openTcpIn(netns, family) });
    client.connect(port, address);
    await once(client, 'connect');
    try {
      using diag = new NetlinkSocket({ protocol: NETLINK_SOCK_DIAG, netns });
      const listening = listSockets(diag, family, 'tcp', TCP_STATE.listen);
      assert.deepEqual(
        listening.map((one) => [one.local, one.localPort]),
        [[address, port]],
      );
      const established = listSockets(diag, family, 'tcp', TCP_STATE.established);
      const mine = established.find((one) => one.remotePort === port);
      assert.ok(mine);
      assert.deepEqual([mine.remote, mine.family, mine.state, established.length], [address, family, 1, 2]);
      const broken = once(client, 'error');
      try {
        assert.equal(destroySocket(diag, mine), true);
      } catch (error) {
        client.destroy();
        broken.catch(() => {});
        if (hasCode(error, 'EOPNOTSUPP')) return t.skip('this kernel cannot destroy sockets');
        throw error;
      }
      const [error] = await broken;
      assert.ok(hasCode(error, 'ECONNABORTED', 'ECONNRESET'), String(error));
      assert.equal(destroySocket(diag, mine), false);
    } finally {
      client.destroy();
      server.close();
    }
  });
}

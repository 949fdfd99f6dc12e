import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { bindUdpIn } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { serviceMap } from '../testing/service-map.ts';
import { createRelayScene, FAMILIES, pause } from './testing/relay-scene.ts';
import type { UserspaceDataplane } from './userspace.ts';

/** Another mode, or another process of this one, takes over while clients are connected. */
describe('the proxy of the userspace mode', () => {
  const scene = createRelayScene();
  const { open, living, web, serveTcp, connectTcp, datagramClient } = scene;
  let dataplane: UserspaceDataplane;

  before(async () => {
    await scene.start();
    dataplane = open();
  });
  after(async () => {
    await dataplane?.close();
    scene.close();
  });

  /** Adds a rule for the next mode: without any NAT rule, the kernel does not translate old flows either. */
  function addNextMode(): void {
    for (const [family, from, to] of [
      ['ip', '198.18.0.1', '198.18.0.2'],
      ['ip6', '2001:2::1', '2001:2::2'],
    ]) {
      scene.topology.run('node', 'nft', `add table ${family} next`);
      scene.topology.run(
        'node',
        'nft',
        `add chain ${family} next nat { type nat hook prerouting priority 0; }`,
      );
      scene.topology.run('node', 'nft', `add rule ${family} next nat ${family} daddr ${from} dnat to ${to}`);
    }
  }

  describe('TCP', () => {
    test('established connections continue after a switch to another mode', async () => {
      const port = await serveTcp('pod1', 'ipv4', (socket) => socket.pipe(socket));
      addNextMode();
      const other = open();
      await dataplane.remove();
      await other.sync(serviceMap(web((f) => [living('pod1', f, port)])));
      const socket = connectTcp('pod3', 'ipv4');
      socket.write('one');
      assert.equal(String((await once(socket, 'data'))[0]), 'one');
      await other.remove();
      await other.close();
      socket.write('two');
      assert.equal(String((await once(socket, 'data'))[0]), 'two');
      socket.destroy();
    });

    for (const family of FAMILIES) {
      test(`${family}: the end of the process waits for connections, and resets those that remain`, async () => {
        const port = await serveTcp('pod1', family, (socket) => socket.pipe(socket));
        const ending = open();
        scene.onClose(() => void ending.close());
        addNextMode();
        await dataplane.remove();
        const echo = async (socket: Socket, text: string) => {
          socket.write(text);
          return String((await once(socket, 'data'))[0]);
        };
        await ending.sync(serviceMap(web((f) => [living('pod1', f, port)])));
        const [brief, long] = [connectTcp('pod3', family), connectTcp('pod3', family)];
        for (const socket of [brief, long]) assert.equal(await echo(socket, 'one'), 'one');
        await ending.remove({ succeeded: true });
        const limit = new AbortController();
        const drained = ending.abilities.connections.drain(limit.signal);
        await ending.close();
        for (const socket of [brief, long]) assert.equal(await echo(socket, 'two'), 'two');
        brief.end();
        await eventually(
          () => ending.connections(),
          (count) => count === 1,
        );
        const failed = once(long, 'error');
        limit.abort();
        assert.equal(await drained, 1);
        assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, 'ECONNRESET');
        assert.equal(await ending.abilities.connections.drain(new AbortController().signal), 0);
      });
    }
  });

  describe('UDP', () => {
    test('a client that keeps sending reaches the restarted proxy', async () => {
      const map = serviceMap(web((f) => [living('pod1', f)], 'UDP'));
      await dataplane.sync(map);
      const one = await datagramClient('ipv4', 'outside');
      assert.equal(await one.ask(), 'pod1');
      await dataplane.close();
      assert.equal(await one.ask(), 'refused');
      dataplane = open();
      await dataplane.sync(map);
      assert.equal(await one.ask(), 'pod1');
    });

    for (const family of FAMILIES) {
      test(`${family}: a request that an old entry leads here is answered before the listener closes`, async () => {
        const port = serveSlowly(family);
        const ending = open();
        addNextMode();
        await dataplane.remove();
        await ending.sync(serviceMap(web((f) => [living('pod1', f, port)], 'UDP')));
        const client = await datagramClient(family);
        assert.equal(await client.ask(), 'slow');
        await ending.remove({ succeeded: true });
        // The listener would close while the answer is on its way.
        await pause(1100);
        assert.equal(await client.ask(), 'slow');
        await ending.close();
        assert.notEqual(await client.ask(), 'slow');
      });
    }
  });

  /** Starts a UDP server in pod1 that takes 400 ms for an answer; returns its port. */
  function serveSlowly(family: IPFamily): number {
    const server = createSocket(family === 'ipv4' ? 'udp4' : 'udp6');
    const any = family === 'ipv4' ? '0.0.0.0' : '::';
    server.on('message', (_, { address, port }) => {
      setTimeout(() => server.send('slow', port, address), 400);
    });
    server.bind({ fd: bindUdpIn(scene.topology.namespace('pod1'), any, 0), exclusive: true });
    scene.onClose(() => server.close());
    return server.address().port;
  }
});

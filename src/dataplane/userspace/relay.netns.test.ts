import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { manualClock, systemClock } from '../../lib/clock.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { changeBetween, serviceMap } from '../testing/service-map.ts';
import type { Place } from '../testing/topology.ts';
import { sendFromPortZero } from '../testing/udp-flow.ts';
import { createRelayScene, FAMILIES, pause, readAll, vip } from './testing/relay-scene.ts';
import { UDP_IDLE_MS } from './udp-sessions.ts';
import type { UserspaceDataplane } from './userspace.ts';

describe('the proxy of the userspace mode', () => {
  const scene = createRelayScene();
  const { open, silent, refusing, living, web, serveTcp, connectTcp, datagramClient } = scene;
  let dataplane: UserspaceDataplane;
  /** The test advances the time; timers use the real clock. */
  const clock = manualClock(Date.now());

  before(async () => {
    await scene.start();
    dataplane = open();
  });
  after(async () => {
    await dataplane?.close();
    scene.close();
  });

  describe('TCP', () => {
    for (const family of FAMILIES) {
      test(`${family}: with two of three endpoints dead, 1,000 of 1,000 connections succeed`, async () => {
        await dataplane.sync(serviceMap(web((f) => [refusing(f), silent(f), living('pod1', f)])));
        const answers = new Map<string, number>();
        await Promise.all(
          Array.from({ length: 20 }, async (_, n) => {
            for (let i = 0; i < 50; i++) {
              const socket = connectTcp(n % 2 ? 'pod3' : 'outside', family);
              const answer = (await readAll(socket)).toString().split(' ')[0] ?? '';
              answers.set(answer, (answers.get(answer) ?? 0) + 1);
              socket.end();
            }
          }),
        );
        assert.deepEqual([...answers], [['pod1', 1000]]);
      });

      test(`${family}: the end of data is passed on separately for each direction`, async () => {
        const port = await serveTcp('pod1', family, (socket) => {
          // Answers only after it has received everything.
          void readAll(socket).then((all) => socket.end(`heard ${all.length}`));
        });
        await dataplane.sync(serviceMap(web((f) => [living('pod1', f, port)])));
        const socket = connectTcp('pod3', family);
        socket.end(Buffer.alloc(3_000_000));
        assert.equal((await readAll(socket)).toString(), 'heard 3000000');
        await eventually(
          () => dataplane.connections(),
          (count) => count === 0,
        );

        let heard: Buffer = Buffer.alloc(0);
        const eager = await serveTcp('pod1', family, (server) => {
          server.end('bye');
          void readAll(server).then((all) => {
            heard = all;
          });
        });
        await dataplane.sync(serviceMap(web((f) => [living('pod1', f, eager)])));
        const late = connectTcp('outside', family);
        assert.equal((await readAll(late)).toString(), 'bye');
        late.end('and thank you');
        await eventually(() => heard.length > 0);
        assert.equal(heard.toString(), 'and thank you');
      });
    }

    test('bytes arrive unchanged in both directions concurrently', async () => {
      const port = await serveTcp('pod2', 'ipv4', (socket) => socket.pipe(socket));
      await dataplane.sync(serviceMap(web((f) => [living('pod2', f, port)])));
      const sent = randomBytes(8 << 20);
      const socket = connectTcp('pod3', 'ipv4');
      socket.end(sent);
      assert.ok((await readAll(socket)).equals(sent));
    });

    test('a client that does not read slows down its server, and finally receives everything', async () => {
      const total = 64 << 20;
      let written = 0;
      const port = await serveTcp('pod1', 'ipv4', (socket) => {
        const chunk = Buffer.alloc(1 << 16, 'x');
        const fill = () => {
          while (written < total) {
            written += chunk.length;
            if (!socket.write(chunk)) {
              socket.once('drain', fill);
              return;
            }
          }
          socket.end();
        };
        fill();
      });
      await dataplane.sync(serviceMap(web((f) => [living('pod1', f, port)])));
      const socket = connectTcp('outside', 'ipv4');
      socket.pause();
      await eventually(() => written > 0);
      let before = -1;
      for (let i = 0; i < 100 && before !== written; i++) {
        before = written;
        await pause(50);
      }
      assert.ok(
        written < total / 2,
        `${written} of ${total} bytes were accepted for a client that does not read`,
      );
      let received = 0;
      socket.on('data', (chunk) => {
        received += chunk.length;
      });
      socket.resume();
      await once(socket, 'end');
      assert.equal(received, total);
      socket.destroy();
    });

    test('a reset of one side resets the other', async () => {
      const seen: string[] = [];
      const port = await serveTcp('pod1', 'ipv4', (socket) => {
        socket.on('error', (error: NodeJS.ErrnoException) => seen.push(error.code ?? ''));
        socket.once('data', (word) => {
          if (word.toString() === 'reset me') socket.resetAndDestroy();
        });
      });
      await dataplane.sync(serviceMap(web((f) => [living('pod1', f, port)])));
      const first = connectTcp('pod3', 'ipv4');
      first.write('reset me');
      const [error] = (await once(first, 'error').catch((cause) => [cause])) as [NodeJS.ErrnoException];
      assert.equal(error.code, 'ECONNRESET');
      const second = connectTcp('pod3', 'ipv4');
      await once(second, 'connect');
      second.write('hello');
      await pause(50);
      second.resetAndDestroy();
      await eventually(() => seen.includes('ECONNRESET'));
    });

    test('when every endpoint refuses, the client is reset at once', async () => {
      await dataplane.sync(serviceMap(web((f) => [refusing(f)])));
      assert.equal(await scene.topology.ask('pod3', 'TCP', vip('ipv4'), 80), 'ECONNRESET');
    });

    test('an endpoint that starts slowly is tried again', async () => {
      await dataplane.sync(serviceMap(web((f) => [silent(f)])));
      const socket = connectTcp('pod3', 'ipv4');
      const answer = readAll(socket);
      await once(socket, 'connect');
      await pause(300);
      // The address moves to a live pod, as when a pod's network is configured late.
      scene.topology.configure('pod2', 'addr add 10.244.1.99/32 dev eth0');
      scene.topology.configure('node', 'neigh del 10.244.1.99 dev v3', 'route replace 10.244.1.99/32 dev v2');
      assert.match((await answer).toString(), /^pod2 /);
      socket.end();
      await eventually(
        () => dataplane.connections(),
        (count) => count === 0,
      );
      scene.topology.configure('pod2', 'addr del 10.244.1.99/32 dev eth0');
      scene.topology.configure(
        'node',
        'route replace 10.244.1.99/32 dev v3',
        'neigh replace 10.244.1.99 lladdr 02:00:00:00:00:99 dev v3 nud permanent',
      );
    });

    test('2,000 connections are open at the same time', async () => {
      const port = await serveTcp('pod1', 'ipv4', (socket) => socket.pipe(socket));
      const port2 = await serveTcp('pod2', 'ipv4', (socket) => socket.pipe(socket));
      await dataplane.sync(
        serviceMap(web((f) => [living('pod1', f, port), living('pod2', f, port2)]).slice(0, 1)),
      );
      const before = dataplane.connections();
      const sockets = Array.from({ length: 2000 }, (_, i) => connectTcp(i % 2 ? 'pod3' : 'outside', 'ipv4'));
      const answers = sockets.map(
        (socket) =>
          new Promise<string>((resolve) => {
            socket.once('data', (data) => resolve(data.toString()));
            socket.once('close', () => resolve('closed'));
          }),
      );
      await Promise.all(sockets.map((socket) => once(socket, 'connect')));
      for (const [i, socket] of sockets.entries()) socket.write(`hello ${i}`);
      assert.deepEqual(
        await Promise.all(answers),
        sockets.map((_, i) => `hello ${i}`),
      );
      assert.equal(dataplane.connections() - before, 2000);
      for (const socket of sockets) socket.end();
      await Promise.all(sockets.map((socket) => readAll(socket)));
      await eventually(
        () => dataplane.connections(),
        (count) => count === before,
      );
    });

    test('connections continue after their endpoint or Service is removed, until they are ended', async () => {
      const port = await serveTcp('pod1', 'ipv4', (socket) => socket.pipe(socket));
      const map = serviceMap(web((f) => [living('pod1', f, port)]));
      await dataplane.sync(map);
      const socket = connectTcp('pod3', 'ipv4');
      socket.write('one');
      assert.equal(String((await once(socket, 'data'))[0]), 'one');
      const moved = serviceMap(web((f) => [living('pod2', f)]));
      await dataplane.apply(changeBetween(map, moved), moved);
      const none = serviceMap([]);
      await dataplane.apply(changeBetween(moved, none), none);
      await pause(1500);
      socket.write('two');
      assert.equal(String((await once(socket, 'data'))[0]), 'two');
      const closed = new Promise((resolve) => socket.once('close', resolve));
      assert.equal(
        await dataplane.abilities.connections.end([{ ip: scene.topology.address('pod1', 'ipv4'), port }]),
        1,
      );
      await closed;
      assert.equal(
        await dataplane.abilities.connections.end([{ ip: scene.topology.address('pod1', 'ipv4'), port }]),
        0,
      );
    });
  });

  describe('UDP', () => {
    for (const family of FAMILIES) {
      test(`${family}: a client keeps its endpoint, the next client gets the next one, and replies come from the address they sent to`, async () => {
        await dataplane.sync(serviceMap(web((f) => [living('pod1', f), living('pod2', f)], 'UDP')));
        const clients = await Promise.all(
          ['pod3', 'outside', 'pod3', 'outside'].map((from) => datagramClient(family, from as Place)),
        );
        const seen: string[] = [];
        for (const one of clients) {
          const first = await one.ask();
          seen.push(first);
          for (let i = 0; i < 5; i++) assert.equal(await one.ask(), first);
        }
        assert.deepEqual(seen.sort(), ['pod1', 'pod1', 'pod2', 'pod2']);
      });

      test(`${family}: a refusing endpoint loses no datagram`, async () => {
        await dataplane.sync(serviceMap(web((f) => [refusing(f), living('pod2', f)], 'UDP')));
        for (let i = 0; i < 6; i++) assert.equal(await (await datagramClient(family)).ask(), 'pod2');
      });

      test(`${family}: a client whose endpoint no longer serves goes to another at once`, async () => {
        const both = serviceMap(web((f) => [living('pod1', f), living('pod2', f)], 'UDP'));
        await dataplane.sync(both);
        const one = await datagramClient(family);
        const first = await one.ask();
        const other = first === 'pod1' ? 'pod2' : 'pod1';
        const less = serviceMap(web((f) => [living(other, f)], 'UDP'));
        await dataplane.apply(changeBetween(both, less), less);
        assert.equal(await one.ask(), other);
      });

      test(`${family}: a client that keeps sending reaches a Service that was removed and added again`, async () => {
        const map = serviceMap(web((f) => [living('pod1', f)], 'UDP'));
        const none = serviceMap([]);
        await dataplane.sync(map);
        const one = await datagramClient(family);
        assert.equal(await one.ask(), 'pod1');
        await dataplane.apply(changeBetween(map, none), none);
        assert.notEqual(await one.ask(), 'pod1');
        await dataplane.apply(changeBetween(none, map), map);
        assert.equal(await one.ask(), 'pod1');
      });
    }

    test('if all endpoints refuse, the datagram is lost and the next one is tried again', async () => {
      const map = serviceMap(web((f) => [refusing(f)], 'UDP'));
      await dataplane.sync(map);
      const one = await datagramClient('ipv4');
      assert.equal(await one.ask(), 'silence');
      const next = serviceMap(web((f) => [living('pod2', f)], 'UDP'));
      await dataplane.apply(changeBetween(map, next), next);
      assert.equal(await one.ask(), 'pod2');
    });

    test('a datagram from port 0, which cannot be answered, stops nothing', async () => {
      await dataplane.sync(serviceMap(web((f) => [living('pod1', f)], 'UDP')));
      sendFromPortZero(
        scene.topology.namespace('pod3'),
        scene.topology.address('pod3', 'ipv4'),
        vip('ipv4'),
        80,
      );
      for (let i = 0; i < 3; i++) assert.equal(await (await datagramClient('ipv4')).ask(), 'pod1');
    });

    test('idle clients expire: soon after one exchange, later after several', async () => {
      await dataplane.close();
      // Due timers run at once, others never: every step checks expiry.
      let due: { at: number; run: () => void }[] = [];
      const manual = {
        now: clock.now,
        after(ms: number, run: () => void) {
          if (ms < UDP_IDLE_MS.exchange / 2) return systemClock.after(ms, run);
          const timer = { at: clock.now() + ms, run };
          due.push(timer);
          return () => {
            due = due.filter((other) => other !== timer);
          };
        },
      };
      const advance = (ms: number) => {
        clock.advance(ms);
        const now = due.filter(({ at }) => at <= clock.now());
        due = due.filter((timer) => !now.includes(timer));
        for (const { run } of now) run();
      };
      dataplane = open({ clock: manual });
      await dataplane.sync(serviceMap(web((f) => [living('pod1', f), living('pod2', f)], 'UDP')));
      const brief = await datagramClient('ipv4');
      const talker = await datagramClient('ipv4');
      await brief.ask();
      const first = await talker.ask();
      await talker.ask();
      assert.equal(dataplane.connections(), 2);
      advance(UDP_IDLE_MS.exchange);
      assert.equal(dataplane.connections(), 1);
      assert.equal(await talker.ask(), first);
      advance(UDP_IDLE_MS.conversation / 2);
      assert.equal(dataplane.connections(), 1);
      advance(UDP_IDLE_MS.conversation / 2);
      assert.equal(dataplane.connections(), 0);
      await dataplane.close();
      dataplane = open();
    });
  });
});

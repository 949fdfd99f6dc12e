import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { bindUdpIn } from '../kernel/netns.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import { silentLogger } from '../lib/log.ts';
import { NodeNetwork } from './node-network.ts';
import { POD_BRIDGE } from './pod-bridge.ts';
import { openPodNetwork, type PodNetwork } from './pod-network.ts';
import {
  connectFrom,
  echoBytes,
  echoServer,
  netnsOf,
  sandbox,
  testNode,
  testPeer,
  testPodCidrs,
  testTopology,
  Undo,
} from './testing/packets.ts';
import { openUnusedAddresses, UNUSED_TABLE } from './unused-addresses.ts';

const FAMILIES = [
  { family: 'IPv4', unused: (n: number) => `10.244.1.${n}` },
  { family: 'IPv6', unused: (n: number) => `fd00:10:244:1::${n.toString(16)}` },
] as const;
/** Unused addresses that an attack sends to; a node's network of IPv4 has no more than 251. */
const FIRST = 100;
const LAST = 250;

describe('addresses of the pod network without a pod', () => {
  const undo = new Undo();
  let stateDir = '';
  let nodes: string[] = [];
  let networks: NodeNetwork[] = [];
  let pods: PodNetwork[] = [];
  /** The timers of the first node's pod network. */
  let timers: { ms: number; run: () => void }[] = [];
  const clock: Clock = {
    now: () => Date.now(),
    after(ms, run) {
      const timer = { ms, run };
      timers.push(timer);
      return () => {
        timers = timers.filter((one) => one !== timer);
      };
    },
  };

  for (const overlay of ['routes', 'vxlan'] as const)
    describe(`overlay ${overlay}`, () => {
      beforeEach(() => {
        const topology = testTopology(undo, 2);
        stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
        undo.add(() => rmSync(stateDir, { recursive: true, force: true }));
        timers = [];
        nodes = [1, 2].map((number) => netnsOf(topology, number));
        networks = [1, 2].map((number) => {
          const network = new NodeNetwork({
            ...testNode(number),
            node: `node-${number}`,
            podCidrs: testPodCidrs(number),
            overlay,
            netns: nodes[number - 1],
          });
          undo.add(() => network.close());
          network.syncRoutes([testPeer(1), testPeer(2)]);
          return network;
        });
        pods = [1, 2].map((number) => open(number));
      });
      afterEach(() => undo.run());

      for (const { family, unused } of FAMILIES)
        for (const from of [1, 2])
          test(`${family}: packets of a pod of node ${from} leave no neighbours, and are answered at once`, async () => {
            const netns = await attach(from, `of-node-${from}`);
            await sendToAll(netns, unused);
            assert.deepEqual(neighboursAsked(), []);
            await assert.rejects(
              () => connectFrom(undo, netns, unused(LAST), 80),
              (error) => hasCode(error, 'EHOSTUNREACH'),
            );
            // The error was not the kernel's, which gives up an entry that it asks for.
            assert.deepEqual(neighboursAsked(), []);
          });

      test("a pod's packets to unused addresses of the node's link do not fill the table of neighbours", async () => {
        const [a, b] = [await attach(1, 'a'), await attach(1, 'b')];
        await sendToAll(a, (n) => `fd00:172:30:9::${(0x1000 + n).toString(16)}`, 1, 1000);
        // The burst, and the hosts of a few seconds.
        const asked = neighboursAsked('eth0').length;
        assert.ok(asked >= 200 && asked <= 700, `${asked} neighbours`);
        // Another pod, and the same one, send to hosts that are there.
        for (const address of testNode(2).addresses) {
          const { port } = await echoServer(undo, nodes[1] ?? '', address);
          assert.ok(await echoBytes(await connectFrom(undo, b, address, port), 1000));
        }
      });

      test('pods reach each other, themselves, and an address that was unused before', async () => {
        const [a, other] = [await attach(1, 'a'), await attach(2, 'other')];
        const early = FAMILIES.map(({ unused }) => unused(3));
        for (const address of early) await assert.rejects(() => connectFrom(undo, other, address, 80));
        const b = await attach(1, 'b');
        assert.deepEqual(pods[0]?.addresses('b'), early);
        for (const address of early) {
          const { port } = await echoServer(undo, b, address);
          for (const from of [a, b, other, ...nodes])
            assert.ok(await echoBytes(await connectFrom(undo, from, address, port), 1000));
        }
      });

      test('after a restart of the agent the answers are for the same addresses', async () => {
        const [a, b] = [await attach(1, 'a'), await attach(1, 'b')];
        pods[0]?.close();
        pods[0] = open(1);
        for (const [i, address] of (pods[0].addresses('b') ?? []).entries()) {
          const { port } = await echoServer(undo, b, address);
          assert.ok(await echoBytes(await connectFrom(undo, a, address, port), 1000));
          const none = FAMILIES[i]?.unused(LAST) ?? '';
          await assert.rejects(
            () => connectFrom(undo, a, none, port),
            (error) => hasCode(error, 'EHOSTUNREACH'),
          );
        }
        assert.deepEqual(neighboursAsked(), []);
      });
    });

  describe('of a pod that left', () => {
    beforeEach(() => {
      const topology = testTopology(undo, 1);
      stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
      undo.add(() => rmSync(stateDir, { recursive: true, force: true }));
      timers = [];
      nodes = [netnsOf(topology, 1)];
      networks = nodes.map((netns) => {
        const network = new NodeNetwork({
          ...testNode(1),
          node: 'node-1',
          podCidrs: testPodCidrs(1),
          overlay: 'routes',
          netns,
        });
        undo.add(() => network.close());
        return network;
      });
      pods = [open(1)];
    });
    afterEach(() => undo.run());

    test('stay silent for ten seconds, in which Services send clients elsewhere, then are answered', async () => {
      await attach(1, 'a');
      await attach(1, 'b');
      const ips = pods[0]?.addresses('b') ?? [];
      await pods[0]?.detach('b');
      assert.deepEqual(used(), [...(pods[0]?.addresses('a') ?? []), ...ips].sort());
      const [first, second] = timers.filter(({ ms }) => ms === 10_000);
      first?.run();
      second?.run();
      await pods[0]?.repair();
      assert.deepEqual(used(), [...(pods[0]?.addresses('a') ?? [])].sort());
    });

    test('stay silent if a pod gets them again meanwhile', async () => {
      const netns = nodes[0];
      const { gateways } = networks[0] ?? assert.fail();
      const podCidrs = gateways.map(({ cidr }) => cidr);
      pods[0]?.close();
      const addresses = openUnusedAddresses({
        bridge: POD_BRIDGE,
        podCidrs,
        links: [],
        used: [],
        netns,
        clock,
      });
      undo.add(() => addresses.close());
      const [ip = '', other = ''] = FAMILIES.map(({ unused }) => unused(9));
      for (const one of [ip, other]) await addresses.take(one);
      for (const one of [ip, other, ip]) addresses.free(one);
      await addresses.take(ip);
      for (const { run } of timers) run();
      await addresses.check();
      assert.deepEqual(used(), [ip]);
    });

    test('the table comes back after another program deleted it', async () => {
      const a = await attach(1, 'a');
      try {
        execFileSync('ip', ['netns', 'exec', nodes[0] ?? '', 'nft', 'delete', 'table', 'ip', UNUSED_TABLE], {
          stdio: 'ignore',
        });
      } catch {
        return; // From Linux 6.9 on, the kernel refuses it.
      }
      await pods[0]?.repair();
      await sendToAll(a, (FAMILIES[0] as (typeof FAMILIES)[number]).unused);
      assert.deepEqual(neighboursAsked(), []);
    });
  });

  const pod = (uid: string) => ({ uid, namespace: 'x', name: uid });

  function open(number: number): PodNetwork {
    const network = networks[number - 1] ?? assert.fail();
    const dir = join(stateDir, `${number}`);
    execFileSync('mkdir', ['-p', dir]);
    const opened = openPodNetwork({
      network,
      stateDir: dir,
      logger: silentLogger,
      ...(number === 1 ? { clock } : {}),
    });
    undo.add(() => opened.close());
    return opened;
  }

  async function attach(number: number, name: string): Promise<string> {
    const netns = sandbox(undo);
    await pods[number - 1]?.attach(pod(name), netns);
    return netns;
  }

  async function sendToAll(
    netns: string,
    unused: (n: number) => string,
    first = FIRST,
    last = LAST,
  ): Promise<void> {
    const isV6 = unused(1).includes(':');
    const fd = bindUdpIn(netns, isV6 ? '::' : '0.0.0.0', 0);
    const socket = createSocket(isV6 ? 'udp6' : 'udp4');
    undo.add(() => socket.close());
    const listening = once(socket, 'listening');
    socket.bind({ fd });
    await listening;
    for (let n = first; n <= last; n++)
      await new Promise<void>((resolve) => socket.send('x', 9, unused(n), () => resolve()));
  }

  /** The addresses that the first node has asked for. */
  function neighboursAsked(device = 'fl0'): string[] {
    const args = ['-n', nodes[0] ?? '', '-j', 'neigh', 'show', 'dev', device];
    const entries: { dst: string; state?: string[] }[] = JSON.parse(
      execFileSync('ip', args, { encoding: 'utf8' }),
    );
    return entries.filter(({ state = [] }) => !state.includes('PERMANENT')).map(({ dst }) => dst);
  }

  function used(): string[] {
    return ['ip', 'ip6']
      .flatMap((family) => {
        const args = [
          'netns',
          'exec',
          nodes[0] ?? '',
          'nft',
          '-j',
          'list',
          'set',
          family,
          UNUSED_TABLE,
          'used',
        ];
        const { nftables } = JSON.parse(execFileSync('ip', args, { encoding: 'utf8' })) as {
          nftables: { set?: { elem?: string[] } }[];
        };
        return nftables.flatMap(({ set }) => set?.elem ?? []);
      })
      .sort();
  }
});

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { openPacketSocket } from '../kernel/packet-socket.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { udpFrame } from '../kernel/testing/frames.ts';
import { parseCidr } from '../lib/address.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { NodeNetwork } from './node-network.ts';
import { openPodNetwork, type PodNetwork, podMac, podPort } from './pod-network.ts';
import { GUARD_TABLE } from './source-guard-rules.ts';
import { netnsOf, sandbox, testNode, testPodCidrs, testTopology, Undo } from './testing/packets.ts';

const VIP = '172.30.9.77';

describe('the source guard', () => {
  const undo = new Undo();
  let node: string;
  let network: NodeNetwork;
  let pods: PodNetwork;
  let stateDir: string;
  let inside: string;
  let ips: readonly string[];
  const received: string[] = [];

  before(async () => {
    node = netnsOf(testTopology(undo, 1), 1);
    network = new NodeNetwork({
      ...testNode(1),
      node: 'node-1',
      podCidrs: testPodCidrs(1),
      overlay: 'routes',
      netns: node,
    });
    undo.add(() => network.close());
    stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
    undo.add(() => rmSync(stateDir, { recursive: true }));
    pods = open();
    undo.add(() => pods.close());
    inside = sandbox(undo);
    ({ ips } = await pods.attach({ uid: 'sender', namespace: 'x', name: 'sender' }, inside));
    const receiver = sandbox(undo);
    const to = await pods.attach({ uid: 'receiver', namespace: 'x', name: 'receiver' }, receiver);
    using socket = openRouteSocket(receiver);
    const tap = openPacketSocket({
      device: getLink(socket, 'eth0').index,
      ethertype: 3,
      netns: receiver,
      onFrame: (frame) => received.push(Buffer.from(frame).toString('latin1')),
      onError: () => {},
    });
    undo.add(() => tap.close());
    target = to.ips[0] ?? '';
  });
  after(() => undo.run());
  let target = '';

  const open = () => openPodNetwork({ network, stateDir, logger: silentLogger });
  let serial = 0;

  /** Sends a packet from a source in the sender's namespace, then an honest one, and returns whether the first arrived. */
  async function passes(source: string, from = inside, mac = podMac('sender')): Promise<boolean> {
    const marks = [source, ips[0] ?? ''].map((one) => ({ one, mark: `mark ${++serial};` }));
    using socket = openRouteSocket(from);
    const tap = openPacketSocket({
      device: getLink(socket, 'eth0').index,
      ethertype: 0,
      netns: from,
      onFrame: () => {},
      onError: () => {},
    });
    const has = (mark: string) => received.some((frame) => frame.includes(mark));
    try {
      const send = ({ one, mark }: { one: string; mark: string }) => {
        const frame = udpFrame(`${one}:4000 > ${target}:${5000 + serial}`, mark);
        frame[14 + 8] = 64;
        const header = frame.subarray(14, 34);
        let sum = 0;
        for (let i = 0; i < 20; i += 2) sum += ((header[i] ?? 0) << 8) | (header[i + 1] ?? 0);
        while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
        header.set([(~sum >> 8) & 0xff, ~sum & 0xff], 10);
        frame.set(Buffer.from(network.bridgeMac.replaceAll(':', ''), 'hex'), 0);
        frame.set(Buffer.from(mac.replaceAll(':', ''), 'hex'), 6);
        tap.send(frame);
      };
      const [forged, honest] = marks;
      assert.ok(forged && honest);
      send(forged);
      await eventually(() => {
        send(honest);
        return has(honest.mark);
      });
      return has(forged.mark);
    } finally {
      tap.close();
    }
  }
  const inNode = (...command: readonly string[]) =>
    execFileSync('ip', ['netns', 'exec', node, ...command], { encoding: 'utf8' });

  test('another source is dropped and counted for the pod', async () => {
    const before = pods.droppedSources();
    assert.equal(await passes('10.244.1.77'), false);
    const after = pods.droppedSources();
    assert.equal(after?.byPod.get('x/sender'), (before?.byPod.get('x/sender') ?? 0) + 1);
    assert.equal(after?.forged, (before?.forged ?? 0) + 1);
  });

  test('an additional source passes while it is allowed, alone or as part of a network', async () => {
    assert.equal(await passes(VIP), false);
    for (const text of [`${VIP}/32`, '172.30.9.64/26']) {
      const cidr = parseCidr(text);
      assert.ok(cidr);
      await pods.allowSources('x/sender', [cidr]);
      assert.equal(await passes(VIP), true, text);
      assert.equal(await passes('172.30.9.1'), false, text);
    }
    await pods.allowSources('x/sender', []);
    assert.equal(await passes(VIP), false);
  });

  test('it stays while no agent runs, and the next agent adopts it', async () => {
    pods.close();
    assert.match(inNode('nft', 'list', 'tables'), new RegExp(GUARD_TABLE));
    assert.equal(await passes('10.244.1.77'), false);
    pods = open();
    assert.equal(await passes('10.244.1.77'), false);
  });

  test('a pod that an earlier version attached gets it when the agent starts', async () => {
    pods.close();
    inNode('nft', 'delete', 'table', 'netdev', GUARD_TABLE);
    inNode('bridge', 'link', 'set', 'dev', podPort('sender'), 'mcast_flood', 'on', 'bcast_flood', 'on');
    assert.equal(await passes('10.244.1.77'), true);
    pods = open();
    assert.equal(await passes('10.244.1.77'), false);
    const port = inNode('bridge', '-d', 'link', 'show', 'dev', podPort('sender'));
    assert.match(port, /mcast_flood off/);
    assert.match(port, /bcast_flood off/);
  });

  test('settings of a port that another program changed are restored', async () => {
    inNode('bridge', 'link', 'set', 'dev', podPort('sender'), 'flood', 'on', 'bcast_flood', 'on');
    assert.deepEqual(await pods.repair(), [`${podPort('sender')} had other settings`]);
    assert.match(inNode('bridge', '-d', 'link', 'show', 'dev', podPort('sender')), /bcast_flood off/);
    assert.deepEqual(await pods.repair(), []);
  });

  test('a pod whose sandbox is recreated is guarded again', async () => {
    const again = sandbox(undo);
    await pods.attach({ uid: 'sender', namespace: 'x', name: 'sender' }, again);
    assert.equal(await passes('10.244.1.77', again), false);
    inside = again;
  });

  test('a pod whose namespace vanished leaves the others guarded', async () => {
    const gone = new Undo();
    const other = sandbox(gone);
    await pods.attach({ uid: 'gone', namespace: 'x', name: 'gone' }, other);
    await gone.run();
    await pods.detach('gone');
    assert.deepEqual(await pods.repair(), []);
    assert.equal(await passes('10.244.1.77'), false);
    assert.doesNotMatch(inNode('nft', 'list', 'table', 'netdev', GUARD_TABLE), new RegExp(podPort('gone')));
  });
});

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { openPacketSocket } from '../kernel/packet-socket.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { icmpErrorFrame, udpFrame } from '../kernel/testing/frames.ts';
import { parseCidr } from '../lib/address.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { NodeNetwork } from './node-network.ts';
import { podMac, podPort } from './pod-link.ts';
import { openPodNetwork, type PodNetwork } from './pod-network.ts';
import { openSourceGuard } from './source-guard.ts';
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
    [target = '', target6 = ''] = to.ips;
  });
  after(() => undo.run());
  let target = '';
  let target6 = '';

  const open = () => openPodNetwork({ network, stateDir, logger: silentLogger });
  let serial = 0;

  /** Sends ICMP errors about packets to these addresses until the last arrives; returns those that arrived. */
  async function arrivedErrors(about: readonly string[]): Promise<string[]> {
    const isV6 = about.every((one) => one.includes(':'));
    const [own = '', to = ''] = isV6 ? [ips[1], target6] : [ips[0], target];
    const end = (address: string, port: number) => `${isV6 ? `[${address}]` : address}:${port}`;
    const frames = about.map((address) => {
      const port = 50_000 + ++serial;
      const subject = udpFrame(`${end(to, 8080)} > ${end(address, port)}`, 'text');
      const [type, code] = isV6 ? [1, 4] : [3, 3];
      return {
        address,
        frame: fromSender(icmpErrorFrame(own, to, type, code, subject)),
        ports: Buffer.from([8080 >> 8, 8080 & 0xff, port >> 8, port & 0xff]).toString('latin1'),
      };
    });
    const hasArrived = ({ ports }: (typeof frames)[number]) => received.some((one) => one.includes(ports));
    await eventually(() => {
      for (const { frame } of frames) sendRaw(inside, frame);
      return hasArrived(frames.at(-1) ?? assert.fail());
    });
    return frames.filter(hasArrived).map(({ address }) => address);
  }

  function sendRaw(from: string, frame: Uint8Array): void {
    using socket = openRouteSocket(from);
    const tap = openPacketSocket({
      device: getLink(socket, 'eth0').index,
      ethertype: 0,
      netns: from,
      onFrame: () => {},
      onError: () => {},
    });
    try {
      tap.send(frame);
    } finally {
      tap.close();
    }
  }

  /** Completes a frame of the sender to the gateway: its MACs, its hop limit, and the checksum of an IPv4 header. */
  function fromSender(frame: Uint8Array, mac = podMac('sender')): Uint8Array {
    frame.set(Buffer.from(network.bridgeMac.replaceAll(':', ''), 'hex'), 0);
    frame.set(Buffer.from(mac.replaceAll(':', ''), 'hex'), 6);
    if ((frame[14] ?? 0) >> 4 === 6) {
      frame[14 + 7] = 64;
      return frame;
    }
    frame[14 + 8] = 64;
    const header = frame.subarray(14, 34);
    header.set([0, 0], 10);
    let sum = 0;
    for (let i = 0; i < 20; i += 2) sum += ((header[i] ?? 0) << 8) | (header[i + 1] ?? 0);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
    header.set([(~sum >> 8) & 0xff, ~sum & 0xff], 10);
    return frame;
  }

  /** Sends a packet from a source in the sender's namespace, then an honest one, and returns whether the first arrived. */
  async function passes(source: string, from = inside, mac = podMac('sender')): Promise<boolean> {
    const marks = [source, ips[0] ?? ''].map((one) => ({ one, mark: `mark ${++serial};` }));
    const has = (mark: string) => received.some((frame) => frame.includes(mark));
    const send = ({ one, mark }: { one: string; mark: string }) =>
      sendRaw(from, fromSender(udpFrame(`${one}:4000 > ${target}:${5000 + serial}`, mark), mac));
    const [forged, honest] = marks;
    assert.ok(forged && honest);
    send(forged);
    await eventually(() => {
      send(honest);
      return has(honest.mark);
    });
    return has(forged.mark);
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

  for (const others of [
    ['10.244.1.77', '172.30.9.11'],
    ['fd00:10:244:1::77', 'fd00:172:30:9::11'],
  ])
    test(`ICMP errors about packets to ${others.join(', ')} are dropped`, async () => {
      const own = ips.find((one) => one.includes(':') === others[0]?.includes(':')) ?? '';
      assert.deepEqual(await arrivedErrors([...others, own]), [own]);
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

  test('a kernel without chains at devices is refused where policies are enforced', () => {
    const options = { gatewayMac: network.bridgeMac, ports: [], netns: node, canGuard: () => false };
    assert.equal(openSourceGuard({ ...options, isRequired: false }), null);
    assert.throws(() => openSourceGuard({ ...options, isRequired: true }), {
      code: 'missing-kernel-feature',
      message: /CONFIG_NF_TABLES_NETDEV/,
    });
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

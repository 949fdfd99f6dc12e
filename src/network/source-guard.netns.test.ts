import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { openPacketSocket } from '../kernel/packet-socket.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { icmpErrorFrame, udpFrame } from '../kernel/testing/frames.ts';
import { parseCidr } from '../lib/address.ts';
import { manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { NodeNetwork } from './node-network.ts';
import { POD_BRIDGE } from './pod-bridge.ts';
import { podMac, podPort } from './pod-link.ts';
import { openPodNetwork, type PodNetwork } from './pod-network.ts';
import { openSourceGuard } from './source-guard.ts';
import { GUARD_TABLE } from './source-guard-rules.ts';
import { netnsOf, sandbox, testNode, testPodCidrs, testTopology, Undo } from './testing/packets.ts';
import { UNUSED_TABLE } from './unused-addresses.ts';

const VIP = '172.30.9.77';
const FLOOD = 3000;

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

  const sendRaw = (from: string, frame: Uint8Array): void => sendAll(from, [frame]);

  function sendAll(from: string, frames: readonly Uint8Array[]): void {
    using socket = openRouteSocket(from);
    const tap = openPacketSocket({
      device: getLink(socket, 'eth0').index,
      ethertype: 0,
      netns: from,
      onFrame: () => {},
      onError: () => {},
    });
    try {
      for (const frame of frames) tap.send(frame);
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
  async function passes(
    source: string,
    from = inside,
    mac = podMac('sender'),
    own = ips[0] ?? '',
  ): Promise<boolean> {
    const marks = [source, own].map((one) => ({ one, mark: `mark ${++serial};` }));
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

  test('a flood of MACs and of reports to groups leaves nothing in the tables of the bridge', async () => {
    const learned = () => inNode('bridge', 'fdb', 'show', 'br', POD_BRIDGE).split('\n').length;
    const joined = () => inNode('bridge', 'mdb', 'show');
    const [entries, groups] = [learned(), joined()];
    const frames = Array.from({ length: FLOOD }, (_, i) => {
      const mac = `02:66:00:00:${(i >> 8).toString(16).padStart(2, '0')}:${(i & 0xff).toString(16).padStart(2, '0')}`;
      // IGMPv2 reports (RFC 2236) to many groups, mDNS questions, and datagrams, each from a MAC of its own.
      const to = [`224.1.${i >> 8}.${i & 0xff}`, '224.0.0.251', target][i % 3] ?? '';
      const packet = udpFrame(`${ips[0]}:5353 > ${to}:5353`, `flood ${i};`);
      if (i % 3 === 0) packet[14 + 9] = 2;
      const frame = fromSender(packet, mac);
      if (i % 3 < 2) frame.set([0x01, 0x00, 0x5e, ...to.split('.').slice(1).map(Number)], 0);
      return frame;
    });
    const before = pods.droppedSources();
    sendAll(inside, frames);
    assert.equal(await passes('10.244.1.77'), false);
    assert.deepEqual([learned(), joined()], [entries, groups]);
    assert.deepEqual(
      received.filter((frame) => frame.includes('flood ')),
      [],
    );
    const after = pods.droppedSources();
    const dropped = (after?.forged ?? 0) + (after?.stray ?? 0) - (before?.forged ?? 0) - (before?.stray ?? 0);
    assert.ok(dropped >= FLOOD, `${dropped} of ${FLOOD} are counted`);
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

  describe('changes by other programs', () => {
    /** Repairs are made when the test advances it. */
    const clock = manualClock();
    const REPAIR_MS = 50;
    const nft = (command: string) => execFileSync('ip', ['netns', 'exec', node, 'bash', '-c', command]);
    // The order of tables and chains is that of their creation.
    const tables = () =>
      inNode('nft', '-s', 'list', 'ruleset')
        .replace(/ packets \d+ bytes \d+/g, '')
        .split('\n')
        .sort()
        .join('\n');

    test('a kernel that can protect the tables refuses them (Linux 6.9)', async (t) => {
      const connection = new NftConnection(node);
      const isProtected = connection.canOwnTables(NFPROTO.netdev);
      connection.close();
      if (!isProtected) {
        t.skip('this kernel cannot');
        return;
      }
      const before = tables();
      for (const table of [`netdev ${GUARD_TABLE}`, `ip ${UNUSED_TABLE}`, `ip6 ${UNUSED_TABLE}`])
        assert.throws(() => nft(`nft delete table ${table} 2>&1`), { status: 1 }, table);
      nft('nft flush ruleset');
      assert.equal(tables(), before);
      assert.equal(await passes('10.244.1.77'), false);
    });

    describe('on a kernel that cannot', () => {
      before(() => {
        pods.close();
        pods = openPodNetwork({ network, stateDir, logger: silentLogger, owned: false, clock });
      });
      after(() => {
        pods.close();
        pods = open();
      });

      const port = podPort('sender');
      const mac = podMac('sender');
      const rows: [what: string, command: string, isGap: boolean][] = [
        ['deletes the guard', `nft delete table netdev ${GUARD_TABLE}`, true],
        ['flushes all tables', 'nft flush ruleset', true],
        ['empties the chain of a port', `nft flush chain netdev ${GUARD_TABLE} port-${port}`, true],
        [
          'permits a source',
          `nft add element netdev ${GUARD_TABLE} own-ipv4 '{ "${port}" . ${mac} . 10.244.1.77 }'`,
          true,
        ],
        ['deletes the answers for unused addresses', `nft delete table ip ${UNUSED_TABLE}`, false],
      ];
      for (const [what, command, isGap] of rows)
        test(`another program ${what}: repaired ${REPAIR_MS} ms after the kernel's event`, async () => {
          const before = tables();
          nft(command);
          assert.notEqual(tables(), before);
          assert.equal(await passes('10.244.1.77'), isGap, 'until the repair');
          await eventually(
            () => {
              clock.advance(REPAIR_MS);
              return tables();
            },
            (text) => text === before,
            20_000,
          );
          assert.equal(await passes('10.244.1.77'), false);
        });

      test('a change whose event is lost: repaired by the check of each ten seconds', async () => {
        const before = tables();
        nft('nft flush ruleset');
        assert.deepEqual((await pods.repair()).includes(GUARD_TABLE), true);
        assert.equal(tables(), before);
        assert.equal(await passes('10.244.1.77'), false);
      });

      test('a pod that starts in between is guarded from its first packet on, and so are the others', async () => {
        nft(`nft delete table netdev ${GUARD_TABLE}`);
        const between = sandbox(undo);
        const attached = pods.attach({ uid: 'between', namespace: 'x', name: 'between' }, between);
        const until = setInterval(() => clock.advance(1), 1);
        try {
          const {
            ips: [own = ''],
          } = await attached;
          assert.equal(await passes('10.244.1.77'), false);
          assert.equal(await passes('10.244.1.78', between, podMac('between'), own), false);
        } finally {
          clearInterval(until);
        }
        await pods.detach('between');
      });
    });
  });
});

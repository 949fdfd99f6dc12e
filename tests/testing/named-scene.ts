import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNameGate, type NameRefusal } from '../../src/agent/name-gate.ts';
import { decodeMessage } from '../../src/dns/decode.ts';
import { addressRecord, encodeQuestion } from '../../src/dns/encode.ts';
import { createForwarder } from '../../src/dns/forwarder.ts';
import { emptyAnswer, type Message, RCODE, type ResourceRecord, TYPE } from '../../src/dns/message.ts';
import { startDnsServer } from '../../src/dns/server.ts';
import { type FakeUpstream, startUpstream } from '../../src/dns/testing/upstream.ts';
import { createZone } from '../../src/dns/zone.ts';
import { bindUdpIn, listenTcpIn, openTcpIn } from '../../src/kernel/netns.ts';
import type { NetworkPolicy } from '../../src/kube/types.ts';
import { addressBytes, parseCidr } from '../../src/lib/address.ts';
import { systemClock } from '../../src/lib/clock.ts';
import { silentLogger } from '../../src/lib/log.ts';
import { NodeNetwork } from '../../src/network/node-network.ts';
import { openPodNetwork } from '../../src/network/pod-network.ts';
import {
  netnsOf,
  sandbox,
  testNode,
  testPodCidrs,
  testTopology,
  type Undo,
} from '../../src/network/testing/packets.ts';
import { outsideNetns } from '../../src/network/topology.ts';
import { type Enforcement, startEnforcement } from '../../src/policy/enforcement.ts';
import { insideCheck } from '../../src/policy/inside-addresses.ts';
import { createLearnedNames, type KeptName, type LearnedNames } from '../../src/policy/learned-names.ts';
import { createNameEnforcement } from '../../src/policy/name-enforcement.ts';
import { createPolicyTable } from '../../src/policy/policy-table.ts';
import { routeBy } from '../../src/policy/testing/packet-scene.ts';
import { namespace, pod as podObject } from '../../src/policy/testing/policy-objects.ts';

/** The host outside has all addresses of these networks. */
const OUTSIDE_V4 = '198.18.0.0/15';
const OUTSIDE_V6 = '2001:db8:1::/64';
export const PORT = 443;
/** Records of an answer over UDP. */
const MAX_UDP_RECORDS = 20;
/** Longer than a packet that passes takes. */
const DENIED_MS = 300;
const CONNECTED_MS = 10_000;

/** Returns the nth address outside, of IPv4 or of IPv6. */
export const outsideAddress = (n: number, isV6 = false): string =>
  isV6 ? `2001:db8:1::${(n + 1).toString(16)}` : `198.${18 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;

/** Returns the record of an address. */
export const record = (name: string, address: string, ttl = 60): ResourceRecord =>
  addressRecord(name, addressBytes(address) ?? new Uint8Array(), ttl);

export const alias = (name: string, target: string, ttl = 60): ResourceRecord => ({
  name,
  type: TYPE.CNAME,
  class: 1,
  ttl,
  data: { target },
});

/** Answers the questions of the name servers outside: "n17.example.com" is the 17th address outside. */
export type Zone = (name: string, type: number) => readonly ResourceRecord[];

export interface NamedPod {
  readonly key: string;
  readonly netns: string;
  readonly ips: readonly string[];
  /** Asks the node's name server. */
  ask(name: string, type?: number): Promise<Message>;
  askOverTcp(name: string, type?: number): Promise<Message>;
  /** Opens a connection; false: none within the time in which one would be. */
  connects(address: string, isExpected?: boolean): Promise<boolean>;
  /** Opens a connection to an echo server. */
  open(address: string): Promise<Socket>;
}

export interface NamedNode {
  readonly enforcement: Enforcement;
  readonly refused: { readonly pod: string; readonly name: string; readonly refusal: NameRefusal }[];
  close(): Promise<void>;
  kept(): KeptName[];
}

export interface NamedScene {
  readonly node: string;
  readonly pods: ReadonlyMap<string, NamedPod>;
  readonly outside: string;
  readonly dns: readonly string[];
  readonly table: ReturnType<typeof createPolicyTable>;
  learned: LearnedNames;
  /** What authorizes the notes of the current part. */
  secret: string;
  readonly upstream: FakeUpstream;
  current: NamedNode;
  /** Answers of the name servers outside; may be replaced. */
  zone: Zone;
  setPolicies(...policies: readonly NetworkPolicy[]): Promise<void>;
  /** Ends the node's part of an agent and starts another. */
  restart(kept?: readonly KeptName[]): Promise<void>;
}

/** Starts a node with pods, its name server and its policies, and a host outside with a name server and many addresses. */
export async function startNamedScene(undo: Undo, podKeys: readonly string[]): Promise<NamedScene> {
  const topology = testTopology(undo, 1);
  const [outside, node] = [outsideNetns(topology.cluster), netnsOf(topology, 1)];
  const ip = (netns: string, ...args: string[]) => execFileSync('ip', ['-n', netns, ...args]);
  ip(outside, 'route', 'add', 'local', OUTSIDE_V4, 'dev', 'lo');
  ip(outside, '-6', 'route', 'add', 'local', OUTSIDE_V6, 'dev', 'lo');
  ip(node, 'route', 'add', OUTSIDE_V4, 'via', topology.outsideAddresses[0] ?? '');
  ip(node, '-6', 'route', 'add', OUTSIDE_V6, 'via', topology.outsideAddresses[1] ?? '');
  const network = new NodeNetwork({
    ...testNode(1),
    node: 'node-1',
    podCidrs: testPodCidrs(1),
    overlay: 'routes',
    masquerade: true,
    netns: node,
  });
  undo.add(() => network.close());
  routeBy(outside, testPodCidrs(1), testNode(1).addresses);
  const stateDir = mkdtempSync(join(tmpdir(), 'flt-'));
  undo.add(() => rmSync(stateDir, { recursive: true }));
  const podNetwork = openPodNetwork({ network, stateDir });
  undo.add(() => podNetwork.close());
  for (const any of ['0.0.0.0', '::']) {
    const server = createServer((socket) => socket.on('error', () => {}).pipe(socket));
    server.listen({ fd: listenTcpIn(outside, any, PORT) });
    await once(server, 'listening');
    undo.add(() => server.close());
  }
  const dns = ['10.96.0.10', 'fd00:10:96::a'];
  for (const one of dns) ip(node, 'addr', 'add', one, 'dev', 'lo');

  const createLearned = () =>
    createLearnedNames({
      now: () => performance.now(),
      wallClock: Date.now,
      isInside: insideCheck({
        networks: () =>
          ['10.244.0.0/16', 'fd00:10:244::/48', '10.96.0.0/16'].flatMap((one) => parseCidr(one) ?? []),
        isMember: (address) => table.podAt(address) !== null || testNode(1).addresses.includes(address),
      }),
    });
  const table = createPolicyTable('node-1', (pod, group, address) =>
    scene.learned.find(pod, group.id, address),
  );
  const pods = new Map<string, NamedPod>();
  for (const name of ['x', 'y', 'kube-system']) table.setNamespace(namespace(name));
  const dnsPod = { key: 'kube-system/kube-dns', labels: 'k8s-app=kube-dns', ips: dns, node: '' };
  table.setPod(podObject(dnsPod));
  for (const key of podKeys) {
    const netns = sandbox(undo);
    const { ips } = await podNetwork.attach(
      { uid: key, namespace: key.split('/')[0] ?? '', name: key },
      netns,
    );
    table.setPod(podObject({ key, ips, labels: `app=${key.split('/')[1]}` }));
    pods.set(key, await openPod(undo, { key, netns, ips, server: dns[0] ?? '' }));
  }
  const upstream = await startUpstream(({ question: { name, type } }, transport) => {
    const answers = scene.zone(name, type);
    if (transport === 'udp' && answers.length > MAX_UDP_RECORDS) return 'truncated';
    return { ...emptyAnswer(RCODE.NOERROR), answers };
  });
  undo.add(() => upstream.close());
  let policies: readonly string[] = [];
  const scene: NamedScene = {
    ...{ node, pods, outside, dns, table, upstream },
    learned: createLearned(),
    secret: '',
    zone: usualZone,
    current: null as unknown as NamedNode,
    async setPolicies(...next) {
      const keys = next.map(({ metadata }) => `${metadata?.namespace}/${metadata?.name}`);
      for (const key of policies) if (!keys.includes(key)) table.deletePolicy(key);
      for (const one of next) table.setPolicy(one);
      policies = keys;
      scene.current.enforcement.changed();
      await scene.current.enforcement.programmed();
    },
    async restart(kept = []) {
      await scene.current.close();
      scene.learned = createLearned();
      scene.current = await startNode(scene, kept);
    },
  };
  scene.current = await startNode(scene, []);
  undo.add(() => scene.current.close());
  return scene;
}

const usualZone: Zone = (name, type) => {
  const [, number] = /^n(\d+)\./.exec(name.toLowerCase()) ?? [];
  if (number === undefined) return [];
  return type === TYPE.A
    ? [record(name, outsideAddress(Number(number)))]
    : type === TYPE.AAAA
      ? [record(name, outsideAddress(Number(number), true))]
      : [];
};

async function startNode(scene: NamedScene, kept: readonly KeptName[]): Promise<NamedNode> {
  const { table, learned, node, dns, upstream } = scene;
  scene.secret = randomBytes(16).toString('hex');
  const names = createNameEnforcement({
    policies: table,
    learned,
    kept,
    secret: scene.secret,
    netns: node,
  });
  const refused: NamedNode['refused'][number][] = [];
  const gate = createNameGate({
    node: 'node-1',
    ...{ policies: table, learned, names, clock: systemClock },
    programmed: () => enforcement.programmed(),
    onRefused: (pod, name, refusal) => refused.push({ pod, name, refusal }),
  });
  const enforcement = startEnforcement({
    policies: table,
    clock: systemClock,
    logger: silentLogger,
    netns: node,
    names: {
      ...names,
      get isReplacing() {
        return names.isReplacing;
      },
      podsChanged(keys) {
        names.podsChanged(keys);
        gate.reset();
      },
    },
  });
  enforcement.rewrite();
  await enforcement.programmed();
  const forwarder = createForwarder({ upstreams: [upstream.address] });
  const zone = createZone({
    domain: 'cluster.local',
    ttl: 5,
    podMode: 'disabled',
    serverAddresses: [...dns],
    reverseCidrs: [],
    now: Date.now,
    random: Math.random,
  });
  zone.setSynced(true);
  const server = await startDnsServer({
    zone,
    forwarder,
    logger: silentLogger,
    hold: gate,
    share: { perSecond: 1e6, burst: 1e6, maxWaiting: 1e6 },
    listeners: dns.map((address) => ({
      udpFd: bindUdpIn(node, address, 53),
      tcpFd: listenTcpIn(node, address, 53),
      family: address.includes(':') ? 'ipv6' : 'ipv4',
    })),
  });
  return {
    enforcement,
    refused,
    kept: () => learned.kept(),
    async close() {
      await server.close();
      forwarder.close();
      await enforcement.close();
    },
  };
}

async function openPod(
  undo: Undo,
  { key, netns, ips, server }: { key: string; netns: string; ips: readonly string[]; server: string },
): Promise<NamedPod> {
  const socket: UdpSocket = createSocket('udp4');
  const listening = once(socket, 'listening');
  socket.bind({ fd: bindUdpIn(netns, ips[0] ?? '', 0) });
  await listening;
  undo.add(() => socket.close());
  const waiting = new Map<number, (message: Message) => void>();
  socket.on('message', (data) => {
    const message = decodeMessage(data);
    if (message) waiting.get(message.id)?.(message);
  });
  let nextId = 1;
  return {
    key,
    netns,
    ips,
    ask(name, type = TYPE.A) {
      const id = nextId;
      nextId = (nextId % 65_535) + 1;
      return new Promise((resolve, reject) => {
        const late = setTimeout(() => reject(new Error(`no answer for ${name}`)), CONNECTED_MS);
        waiting.set(id, (message) => {
          clearTimeout(late);
          waiting.delete(id);
          resolve(message);
        });
        socket.send(encodeQuestion(id, name, type), 53, server);
      });
    },
    async askOverTcp(name, type = TYPE.A) {
      const tcp = new Socket({ fd: openTcpIn(netns, 'ipv4') });
      tcp.connect(53, server);
      await once(tcp, 'connect');
      const question = encodeQuestion(1, name, type);
      tcp.write(Buffer.concat([Buffer.of(question.length >> 8, question.length & 255), question]));
      let data = Buffer.alloc(0);
      for await (const chunk of tcp) {
        data = Buffer.concat([data, chunk as Buffer]);
        if (data.length >= 2 && data.length >= data.readUInt16BE(0) + 2) break;
      }
      tcp.destroy();
      const message = decodeMessage(data.subarray(2));
      if (!message) throw new Error(`no answer for ${name}`);
      return message;
    },
    async open(address) {
      const tcp = new Socket({ fd: openTcpIn(netns, address.includes(':') ? 'ipv6' : 'ipv4') });
      undo.add(() => tcp.destroy());
      tcp.connect(PORT, address);
      await once(tcp, 'connect');
      tcp.on('error', () => {});
      return tcp;
    },
    async connects(address, isExpected = true) {
      const tcp = new Socket({ fd: openTcpIn(netns, address.includes(':') ? 'ipv6' : 'ipv4') });
      tcp.connect(PORT, address);
      const late = AbortSignal.timeout(isExpected ? CONNECTED_MS : DENIED_MS);
      try {
        await once(tcp, 'connect', { signal: late });
        return true;
      } catch {
        return false;
      } finally {
        tcp.on('error', () => {});
        tcp.destroy();
      }
    },
  };
}

/** Returns a NetworkPolicy that isolates pods for egress, and allows DNS and names. */
export const namedPolicy = (name: string, names: string | null, app: string, space = 'x'): NetworkPolicy => ({
  metadata: {
    name,
    namespace: space,
    ...(names === null ? {} : { annotations: { 'fairlead.dev/egress-names': names } }),
  },
  spec: {
    podSelector: { matchLabels: { app } },
    policyTypes: ['Egress'],
    egress: [
      {
        to: [{ namespaceSelector: {}, podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } } }],
        ports: [
          { protocol: 'UDP', port: 53 },
          { protocol: 'TCP', port: 53 },
        ],
      },
    ],
  },
});

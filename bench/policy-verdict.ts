/**
 * Measures the cost of enforcing policies by nf_tables and by programs at the pods' devices, for packets of open
 * connections. nf_tables sees a packet once, at the forward hook, and one rule accepts it by its connection's state.
 * Programs at devices see it at the device of each pod, before its connection is known to them; the program here does the
 * least that such a program has to do: it reads the addresses, looks up whether the pod is isolated, and if it is, whether
 * the peer is admitted. Ports, several policies and connections are left out, so the figure is a lower bound.
 *
 * One of these costs less than the measurement's resolution. A node therefore has many copies of it, and the difference to a
 * node without any, divided by their number, is the cost of one.
 *
 * node bench/policy-verdict.ts [--rounds 20000] [--copies 32] [--elements 250000]
 */
import { parseArgs } from 'node:util';
import { linkDevice } from '../src/kernel/bpf/link.ts';
import { createMap } from '../src/kernel/bpf/map.ts';
import { loadProgram } from '../src/kernel/bpf/program.ts';
import { inNetns } from '../src/kernel/netns.ts';
import { listLinks, openRouteSocket } from '../src/kernel/rtnetlink/links.ts';
import { addressBytes } from '../src/lib/address.ts';
import { netnsOf, testTopology, Undo } from '../src/network/testing/packets.ts';
import { feedCommand } from './feed-command.ts';
import { figures, machineText, measureRoundTrips, type Pair, percentile, startNode } from './pod-pairs.ts';
import { printTable } from './print-table.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '20000' },
    copies: { type: 'string', default: '32' },
    elements: { type: 'string', default: '250000' },
  },
});
const [rounds, copies, elementCount] = [
  Number(values.rounds),
  Number(values.copies),
  Number(values.elements),
];
/** The byte and its echo. Each acknowledges the other. */
const PACKETS = 2;
/** The devices of the two pods. */
const DEVICES = 2;

const undo = new Undo();

/** The rules of policies that a packet of an open connection passes, `copies` times. */
async function addChains(netns: string): Promise<void> {
  const lines = ['add table ip copies'];
  for (let i = 0; i < copies; i++) {
    lines.push(
      `add chain ip copies forward-${i} { type filter hook forward priority 0 ; }`,
      `add rule ip copies forward-${i} ct state established,related accept`,
    );
  }
  await feedCommand(netns, 'nft', ['-f', '-'], `${lines.join('\n')}\n`);
}

/** Attaches `copies` programs to each direction of each pod's device. */
function addPrograms(netns: string, { server, client }: Pair): void {
  const pods = createMap({ name: 'pods', kind: 'hash', keySize: 4, valueSize: 4, maxEntries: 256 });
  const admitted = createMap({
    name: 'admitted',
    kind: 'hash',
    keySize: 8,
    valueSize: 4,
    maxEntries: elementCount + 2,
  });
  undo.add(() => pods.close());
  undo.add(() => admitted.close());
  const [from, to] = [addressBytes(client) ?? new Uint8Array(4), addressBytes(server) ?? new Uint8Array(4)];
  const value = Uint8Array.of(1, 0, 0, 0);
  for (const pod of [from, to]) pods.update(pod, value);
  const keys = new Uint32Array(elementCount * 2);
  for (let i = 0; i < elementCount; i++) keys.set([i, i % 100], i * 2);
  admitted.updateBatch(new Uint8Array(keys.buffer), new Uint8Array(elementCount * 4).fill(1), elementCount);
  admitted.update(Uint8Array.of(...from, ...to), value);
  admitted.update(Uint8Array.of(...to, ...from), value);
  const instructions = verdictProgram(pods.fd, admitted.fd);
  using socket = openRouteSocket(netns);
  const ports = listLinks(socket).filter(({ kind, master }) => kind === 'veth' && master !== null);
  if (ports.length !== DEVICES) throw new Error(`${ports.length} devices of pods instead of ${DEVICES}`);
  for (let i = 0; i < copies; i++) {
    // The kernel attaches a program only once to a hook.
    const program = loadProgram({ name: 'verdict', type: 'tc', instructions, license: 'Apache-2.0' });
    undo.add(() => program.close());
    inNetns(netns, () => {
      for (const { index } of ports) {
        for (const hook of ['tcxIngress', 'tcxEgress'] as const) {
          const link = linkDevice(program.fd, index, hook);
          undo.add(() => link.close());
        }
      }
    });
  }
}

/** Instructions of 8 bytes (linux/bpf.h, struct bpf_insn). */
function verdictProgram(pods: number, admitted: number): Uint8Array {
  const code: number[] = [];
  const add = (opcode: number, registers: number, offset = 0, immediate = 0) => {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt8(opcode, 0);
    bytes.writeUInt8(registers, 1);
    bytes.writeInt16LE(offset, 2);
    bytes.writeInt32LE(immediate, 4);
    code.push(...bytes);
  };
  const move = (to: number, from: number) => add(0xbf, to | (from << 4));
  const set = (to: number, value: number) => add(0xb7, to, 0, value);
  const call = (helper: number) => add(0x85, 0, 0, helper);
  /** `BPF_PSEUDO_MAP_FD`: a descriptor in an instruction of double length. */
  const lookup = (map: number, keyAt: number) => {
    add(0x18, 1 | (1 << 4), 0, map);
    add(0, 0);
    move(2, 10);
    add(0x07, 2, 0, keyAt);
    call(1);
  };
  const IS_ZERO = 0x15;
  const NOT_ZERO = 0x55;
  // bpf_skb_load_bytes: source and destination, behind the Ethernet header.
  set(2, 14 + 12);
  move(3, 10);
  add(0x07, 3, 0, -8);
  set(4, 8);
  call(26);
  add(NOT_ZERO, 0, 14);
  lookup(pods, -4);
  add(IS_ZERO, 0, 8);
  lookup(admitted, -8);
  add(NOT_ZERO, 0, 2);
  // TC_ACT_SHOT
  set(0, 2);
  add(0x95, 0);
  // TCX_NEXT
  set(0, -1);
  add(0x95, 0);
  return Uint8Array.from(code);
}

async function main(): Promise<void> {
  const topology = testTopology(undo, 3);
  const node = (number: number) => startNode(undo, number, netnsOf(topology, number), true)();
  const [none, chains, programs] = [await node(1), await node(2), await node(3)];
  await addChains(netnsOf(topology, 2));
  addPrograms(netnsOf(topology, 3), programs);
  const times = await measureRoundTrips(rounds, { none, chains, programs });
  const each = (list: readonly number[], runs: number) =>
    `${(((percentile(list, 0.5) - percentile(times.none, 0.5)) / copies / runs) * 1e6).toFixed(0)} ns`;
  printTable([
    ['round trip over an open connection, µs', 'median', '99 %', 'slowest'],
    ['no policies', ...inMicroseconds(times.none)],
    [`${copies} chains`, ...inMicroseconds(times.chains)],
    [`${copies} programs at each device`, ...inMicroseconds(times.programs)],
    ['a packet through a chain', each(times.chains, PACKETS), '', ''],
    ['a packet through a program', each(times.programs, PACKETS * DEVICES), '', ''],
    ['a packet through the programs of two pods', each(times.programs, PACKETS), '', ''],
  ]);
  console.log(`${rounds} round trips of each; ${machineText()}`);
}

const inMicroseconds = (list: readonly number[]) =>
  figures(
    list.map((one) => one * 1000),
    1,
  );

try {
  await main();
} finally {
  await undo.run();
}

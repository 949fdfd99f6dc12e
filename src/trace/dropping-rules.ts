import { firstNftObjects } from '../kernel/nftables/connection.ts';
import { NFPROTO, NFPROTO_INET, NFPROTO_UNSPEC } from '../kernel/nftables/constants.ts';
import { readTable } from '../kernel/nftables/dump.ts';
import { type PacketEnd, type TracedBytes, tracePackets } from '../kernel/nftables/packet-trace.ts';
import { IP_PROTOCOL } from '../kernel/packet.ts';
import type { IPFamily } from '../lib/address.ts';
import type { DroppingRule } from './observation.ts';
import { datagramPayload, type TracedPacket } from './observation.ts';
import { MAX_PROBE_BYTES } from './packet-sizes.ts';
import type { TracedPlace } from './recorder.ts';

const OWN_TABLE = /^fairlead(-|$)/;
const MAX_TABLES = 256;
const FAMILY_NAMES: Readonly<Record<number, string>> = {
  [NFPROTO_INET]: 'inet',
  [NFPROTO.ipv4]: 'ip',
  [NFPROTO.ipv6]: 'ip6',
};

/**
 * Lets the kernel name the rules that drop a packet, at the places where other programs have nf_tables tables; nothing is added at
 * others. `port`: where a datagram is sent to.
 */
export function watchDroppingRules(
  places: readonly TracedPlace[],
  packet: TracedPacket,
  family: IPFamily,
  port: number,
): { rules(): DroppingRule[]; close(): void } {
  const bytes = bytesOf(packet, family, port);
  const watches = places.flatMap(({ name, netns }) => {
    try {
      return hasForeignTables(netns) ? [{ name, trace: tracePackets(netns, bytes) }] : [];
    } catch {
      // A kernel without owned tables, or a namespace that ended: the way of the packet shows where it ends.
      return [];
    }
  });
  return {
    rules: () =>
      watches.flatMap(({ name, trace }) => {
        const texts = new Set(trace.ends().map(textOf));
        return [...texts].map((where) => ({ place: name, where }));
      }),
    close() {
      for (const { trace } of watches) trace.close();
    },
  };
}

const hasForeignTables = (netns: TracedPlace['netns']): boolean =>
  firstNftObjects(netns, 'getTable', NFPROTO_UNSPEC, [], MAX_TABLES)
    .map(readTable)
    .some(({ name, family }) => !OWN_TABLE.test(name) && family in FAMILY_NAMES);

/** The sequence numbers of a connection and what acknowledges them, or the first bytes of a datagram, which are chosen by chance. */
function bytesOf(packet: TracedPacket, family: IPFamily, port: number): TracedBytes {
  if (packet.protocol === 'TCP') {
    const { sequence } = packet;
    // The segments that measure sizes have smaller numbers. The few numbers that pass zero are not followed.
    const first = Math.max(0, sequence - MAX_PROBE_BYTES);
    const oneOf = [
      { offset: 4, low: word(first), high: word(sequence) },
      { offset: 8, low: word(sequence + 1), high: word(sequence + 1) },
    ];
    return { family, protocol: IP_PROTOCOL.tcp, oneOf };
  }
  const value = datagramPayload(packet, port).slice(0, 16);
  return { family, protocol: IP_PROTOCOL.udp, oneOf: [{ offset: 8, low: value, high: value }] };
}

function word(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

const textOf = ({ family, table, chain, rule }: PacketEnd): string =>
  `table ${FAMILY_NAMES[family] ?? `family ${family}`} ${table}, chain ${chain}, ${rule === null ? 'policy drop' : `rule with handle ${rule}`}`;

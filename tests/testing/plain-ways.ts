import type { Leg } from '../../src/trace/hops.ts';
import { endText } from '../../src/trace/hops.ts';
import type { PlainPacket, PlainTuple } from './plain-capture.ts';

/** The devices that one packet passes, in order, with its addresses there. */
export interface PlainWay {
  readonly kind: string;
  /** "node-1 in eth0: 10.0.0.1:1000 > 10.0.0.2:80" */
  readonly hops: readonly string[];
}

/** What tells the packets of a connection, or of a datagram and its answer, from others. */
export interface PlainFlow {
  readonly protocol: 'TCP' | 'UDP';
  /** Addresses and ports of the server, before and after translation: "10.96.0.10:80". */
  readonly servers: ReadonlySet<string>;
  /** Ports of other servers: at the same time, a socket towards one of them can have the same port as the client's. */
  readonly otherPorts: ReadonlySet<number>;
  /** Where the client is, and the address and port of its socket; null: not known. */
  readonly client: { readonly place: string; readonly end: string | null };
  /** The packets that were sent from `beginNs` to `endNs` are its. */
  readonly beginNs: bigint;
  readonly endNs: bigint;
}

/** Returns the ways of a flow's packets in a capture: those of `fairlead trace`, each one once. */
export function capturedWays(packets: readonly PlainPacket[], flow: PlainFlow): PlainWay[] {
  const near = packets.filter(({ timeNs }) => timeNs >= flow.beginNs);
  const there = requestsOf(near, flow);
  const groups = new Map<string, { readonly kind: string; copies: PlainPacket[][] }>();
  for (const packet of near) {
    const kind = kindOf(packet, flow.protocol, there);
    if (kind === null) continue;
    const key = `${kind} ${packet.id}`;
    const group = groups.get(key) ?? { kind, copies: [] };
    groups.set(key, group);
    const first = group.copies[0]?.[0];
    // A packet that is seen at its first device again was sent again.
    if (!first || deviceText(first) === deviceText(packet)) group.copies.push([]);
    group.copies.at(-1)?.push(packet);
  }
  const ways = [...groups.values()].flatMap(({ kind, copies }) =>
    copies
      .filter(([first]) => first && first.timeNs <= flow.endNs)
      .map((copy) => ({ kind, hops: copy.map((one) => hopText(deviceText(one), one, one.tunnel)) })),
  );
  return eachOnce(ways);
}

/** Returns the ways that a trace shows. */
export function tracedWays(legs: readonly Leg[]): PlainWay[] {
  return eachOnce(
    legs.map(({ kind, way, hops }) => ({
      kind: `${kind} ${way}`,
      hops: hops
        // tcpdump shows a packet on loopback once, where it arrives.
        .filter(({ device, direction }) => !(device === LOOPBACK && direction === 'out'))
        .map(({ place, direction, device, source, destination, tunnel }) =>
          hopText(
            `${place} ${direction} ${device}`,
            { source: endText(source), destination: endText(destination) },
            tunnel && `${tunnel.source} > ${tunnel.destination}`,
          ),
        ),
    })),
  );
}

const LOOPBACK = 'lo';
const deviceText = ({ place, direction, device }: PlainPacket) => `${place} ${direction} ${device}`;
const hopText = (device: string, { source, destination }: PlainTuple, tunnel: string | null) =>
  `${device}: ${source} > ${destination}${tunnel === null ? '' : ` inside ${tunnel}`}`;
const tupleText = ({ source, destination }: PlainTuple) => `${source} > ${destination}`;
const reversedText = ({ source, destination }: PlainTuple) => `${destination} > ${source}`;

/** The ends of all packets from the client, before and after translation, and from a proxy on its behalf. */
function requestsOf(
  packets: readonly PlainPacket[],
  { protocol, servers, otherPorts, client }: PlainFlow,
): Set<string> {
  const there = new Set<string>();
  const isSent = ({ source, destination }: PlainTuple) => servers.has(destination) && isClient(source);
  for (const packet of packets) {
    const { about } = packet;
    // The rules of the client's node can refuse a packet before any device has passed it.
    if (about?.protocol === protocol && isSent(about)) there.add(tupleText(about));
    if (packet.protocol !== protocol || there.has(reversedText(packet))) continue;
    const isFromClient =
      packet.place === client.place &&
      packet.source === client.end &&
      !otherPorts.has(portOf(packet.destination));
    if (servers.has(packet.source) && isClient(packet.destination)) there.add(reversedText(packet));
    else if (isSent(packet) || isFromClient) there.add(tupleText(packet));
  }
  return there;
}

/** The first port that clients get, also behind masquerading. */
const FIRST_CLIENT_PORT = 1024;
const portOf = (end: string) => Number(end.slice(end.lastIndexOf(':') + 1));
const isClient = (end: string) => portOf(end) >= FIRST_CLIENT_PORT;

const FLAG = { syn: 2, rst: 4, ack: 16 } as const;

function kindOf(packet: PlainPacket, asked: 'TCP' | 'UDP', there: ReadonlySet<string>): string | null {
  const { protocol, flags, about } = packet;
  if (about) {
    const isOurs =
      about.protocol === asked && (there.has(tupleText(about)) || there.has(reversedText(about)));
    return isOurs ? 'error back' : null;
  }
  if (protocol !== asked) return null;
  const isThere = there.has(tupleText(packet));
  if (!isThere && !there.has(reversedText(packet))) return null;
  if (protocol === 'UDP') return isThere ? 'datagram there' : 'answer back';
  if (flags === null) return null;
  if (flags & FLAG.rst) return isThere ? null : 'RST back';
  if (!(flags & FLAG.syn)) return null;
  return flags & FLAG.ack ? 'SYN-ACK back' : 'SYN there';
}

function eachOnce(ways: readonly PlainWay[]): PlainWay[] {
  const unique = new Map(ways.map((way) => [JSON.stringify(way), way]));
  return [...unique].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, way]) => way);
}

import { type Packet, TCP_FLAG } from '../kernel/packet.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';

/** The outcome of a connection whose packets were seen. */
export type ConnectionOutcome = 'answered' | 'refused' | 'unreachable' | 'unanswered' | 'reset';

/** A TCP connection, as its packets on the devices of a node show it. */
export interface SeenConnection {
  readonly outcome: ConnectionOutcome;
  readonly client: SocketAddress;
  /** The destination at the first device. */
  readonly destination: SocketAddress;
  /** The last destination that was seen: another one if the packet was translated. */
  readonly endpoint: SocketAddress;
  /** A process of the node itself opened it. */
  readonly isOwn: boolean;
  /** The answer: "RST", "ICMP port unreachable"; of a reset connection, who reset it; null: nothing. */
  readonly cause: string | null;
  /** Microseconds from the first packet to the outcome. */
  readonly micros: number;
  /** When the first packet was seen, in nanoseconds since 1970. */
  readonly beganNs: bigint;
}

/** Follows the connections of a node by their packets. */
export interface ConnectionTable {
  /** `isLeaving`: the device sent it. */
  packet(packet: Packet, isLeaving: boolean, timeNs: bigint): void;
  /** Forgets all connections: some of their packets were not read. */
  clear(): void;
  /** Reports the connections that have waited too long for an answer. */
  expire(nowNs: bigint): void;
}

interface Followed extends Omit<SeenConnection, 'outcome' | 'cause' | 'micros'> {
  endpoint: SocketAddress;
  outcome: ConnectionOutcome | null;
}

/** A SYN is sent again after one second (RFC 6298, section 2): then once more it had time to be answered. */
export const UNANSWERED_NS = 2_500_000_000n;
/** How many connections are followed until they are answered, and how many until they are reset. */
const MAX_OPENING = 32_768;
const MAX_OPEN = 16_384;

export function createConnectionTable(report: (seen: SeenConnection) => void): ConnectionTable {
  /** By the sequence number of the SYN, which no translation changes; in order of time. */
  const opening = new Map<number, Followed>();
  /** By the client. */
  const open = new Map<string, Followed>();

  const finish = (one: Followed, outcome: ConnectionOutcome, cause: string | null, timeNs: bigint) => {
    one.outcome = outcome;
    report({ ...one, outcome, cause, micros: Number((timeNs - one.beganNs) / 1000n) });
  };
  const begin = (packet: Packet, sequence: number, isLeaving: boolean, timeNs: bigint) => {
    const ends = endsOf(packet);
    if (!ends) return;
    const known = opening.get(sequence);
    if (known) {
      known.endpoint = ends.destination;
      return;
    }
    if (opening.size >= MAX_OPENING) return;
    const { source: client, destination } = ends;
    const isOwn = isLeaving || packet.source === packet.destination;
    opening.set(sequence, {
      client,
      destination,
      endpoint: destination,
      isOwn,
      beganNs: timeNs,
      outcome: null,
    });
  };
  const answered = (one: Followed, timeNs: bigint) => {
    finish(one, 'answered', null, timeNs);
    open.set(hostPort(one.client), one);
    const [oldest] = open.keys();
    if (open.size > MAX_OPEN && oldest !== undefined) open.delete(oldest);
  };
  const reset = (packet: Packet, timeNs: bigint) => {
    const { tcp } = packet;
    const ends = endsOf(packet);
    if (!tcp || !ends) return;
    const refused = tcp.flags & TCP_FLAG.ack ? opening.get((tcp.acknowledgment - 1) >>> 0) : undefined;
    if (refused?.outcome === null) {
      finish(refused, 'refused', 'RST', timeNs);
      return;
    }
    for (const [who, client, server] of [
      ['the client', ends.source, ends.destination],
      ['the server', ends.destination, ends.source],
    ] as const) {
      const one = open.get(hostPort(client));
      const other = hostPort(server);
      if (!one || (other !== hostPort(one.destination) && other !== hostPort(one.endpoint))) continue;
      open.delete(hostPort(client));
      finish(one, 'reset', `by ${who}`, timeNs);
    }
  };
  return {
    packet(packet, isLeaving, timeNs) {
      const { tcp, icmp } = packet;
      if (icmp) {
        const about = icmp.about?.tcp;
        const one = about && opening.get(about.sequence);
        if (!one || one.outcome !== null || icmp.meaning === 'other') return;
        finish(one, icmp.meaning, `ICMP ${icmp.text}`, timeNs);
        return;
      }
      if (!tcp) return;
      if (tcp.flags & TCP_FLAG.rst) reset(packet, timeNs);
      else if ((tcp.flags & TCP_FLAG.ack) === 0) begin(packet, tcp.sequence, isLeaving, timeNs);
      else {
        const one = opening.get((tcp.acknowledgment - 1) >>> 0);
        if (one?.outcome === null) answered(one, timeNs);
      }
    },
    clear() {
      opening.clear();
      open.clear();
    },
    expire(nowNs) {
      for (const [sequence, one] of opening) {
        if (nowNs - one.beganNs < UNANSWERED_NS) return;
        opening.delete(sequence);
        if (one.outcome === null) finish(one, 'unanswered', null, nowNs);
      }
    },
  };
}

function endsOf({ source, destination, ports }: Packet) {
  return ports
    ? {
        source: { ip: source, port: ports.source },
        destination: { ip: destination, port: ports.destination },
      }
    : null;
}

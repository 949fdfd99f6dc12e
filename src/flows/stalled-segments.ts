import type { Packet } from '../kernel/packet.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';

/** A full segment that its sender sends again and again. */
export interface StalledSegment {
  readonly sender: SocketAddress;
  readonly receiver: SocketAddress;
  /** How often it was seen. */
  readonly sent: number;
  /** Microseconds from the first to the last time. */
  readonly micros: number;
  /** When it was seen first, in nanoseconds since 1970. */
  readonly beganNs: bigint;
}

/** Finds segments that are sent again without an acknowledgment. */
export interface StalledSegments {
  /** A full segment, as a device of the node passed it. */
  segment(packet: Packet, device: number, timeNs: bigint): void;
  /** Forgets all segments: some were not read. */
  clear(): void;
}

interface Followed {
  sequence: number;
  sent: number;
  beganNs: bigint;
  /** The first device that showed it: others show the same packet. */
  device: number;
  lastNs: bigint;
  isReported: boolean;
}

/**
 * A lost segment is sent again after 200 ms at least, and then after the double each time (RFC 6298, and TCP_RTO_MIN of Linux): so often,
 * its answers did not just come late.
 */
const STALLED_AFTER = 4;
const STALLED_NS = 1_000_000_000n;
const MIN_PAUSE_NS = 100_000_000n;
/** Connections that are followed; the oldest are forgotten. */
const MAX_FOLLOWED = 16_384;

export function createStalledSegments(report: (stalled: StalledSegment) => void): StalledSegments {
  /** By both ends: the latest full segment. */
  const latest = new Map<string, Followed>();
  return {
    segment({ tcp, ports, source, destination }, device, timeNs) {
      if (!tcp || !ports) return;
      const sender = { ip: source, port: ports.source };
      const receiver = { ip: destination, port: ports.destination };
      const key = `${hostPort(sender)} ${hostPort(receiver)}`;
      const known = latest.get(key);
      if (known?.sequence !== tcp.sequence) {
        // The connection goes on.
        latest.delete(key);
        latest.set(key, {
          ...{ sequence: tcp.sequence, sent: 1, beganNs: timeNs, lastNs: timeNs, device },
          isReported: false,
        });
        const [oldest] = latest.keys();
        if (latest.size > MAX_FOLLOWED && oldest !== undefined) latest.delete(oldest);
        return;
      }
      if (known.device !== device || timeNs - known.lastNs < MIN_PAUSE_NS) return;
      known.sent++;
      known.lastNs = timeNs;
      if (known.isReported || known.sent < STALLED_AFTER || timeNs - known.beganNs < STALLED_NS) return;
      known.isReported = true;
      const { sent, beganNs } = known;
      report({ sender, receiver, sent, beganNs, micros: Number((timeNs - beganNs) / 1000n) });
    },
    clear() {
      latest.clear();
    },
  };
}

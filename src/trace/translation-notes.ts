import type { Packet } from '../kernel/packet.ts';
import { hostPort } from '../lib/address.ts';

/** The maximum number of packets that are remembered. */
const MAX_REMEMBERED = 20_000;

/**
 * Notes packets that are seen again with other addresses. A segment is recognized by its numbers, which no translation
 * changes; datagrams have nothing alike.
 */
export function createTranslationNotes() {
  const seen = new Map<string, string>();
  /** Returns the translation since the previous sighting of the packet; null: none, or it is the first sighting. */
  return (packet: Packet): string | null => {
    const { tcp, ports } = packet;
    if (!tcp || !ports) return null;
    const key = `${tcp.sequence} ${tcp.acknowledgment} ${tcp.flags} ${packet.payload.length}`;
    const source = hostPort({ ip: packet.source, port: ports.source });
    const destination = hostPort({ ip: packet.destination, port: ports.destination });
    const now = `${source} → ${destination}`;
    const before = seen.get(key);
    // The oldest entry comes first in a Map.
    seen.delete(key);
    seen.set(key, now);
    if (seen.size > MAX_REMEMBERED) {
      const [oldest] = seen.keys();
      if (oldest !== undefined) seen.delete(oldest);
    }
    return before === undefined || before === now ? null : `translated from ${before}`;
  };
}

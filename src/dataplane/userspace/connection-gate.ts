import { readPacket } from '../../kernel/packet.ts';
import { hostPort, type SocketAddress } from '../../lib/address.ts';
import type { PoolListener } from './pool-listener.ts';

/** Connections whose denial was reported: clients repeat their first packet. */
const MAX_REPORTED = 4096;

/**
 * Returns a function that decides about packets which open connections to listeners, before the kernel accepts these: false
 * if network policies deny the client all endpoints. The denial is reported once for each connection.
 */
export function admitting(
  listenerAt: (at: SocketAddress) => PoolListener | undefined,
): (packet: Uint8Array) => boolean {
  /** The sequence number of the first packet, by client. */
  const reported = new Map<string, number>();
  return (bytes) => {
    const packet = readPacket(bytes);
    if (!packet?.ports || !packet.tcp) return true;
    const listener = listenerAt({ ip: packet.destination, port: packet.ports.destination });
    const endpoint = listener?.deniedTo(packet.source) ?? null;
    if (!listener || endpoint === null) return true;
    const client = { ip: packet.source, port: packet.ports.source };
    const key = hostPort(client);
    if (reported.get(key) !== packet.tcp.sequence) listener.denied(client, endpoint);
    reported.delete(key);
    reported.set(key, packet.tcp.sequence);
    const [oldest] = reported.keys();
    if (reported.size > MAX_REPORTED && oldest !== undefined) reported.delete(oldest);
    return false;
  };
}

import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { familyOf, hostPort, type SocketAddress } from '../../lib/address.ts';

/**
 * Deletes the connection tracking entries of these listeners' UDP clients, so that their next datagrams follow the current
 * rules instead of going to a listener that is about to close. `keeps`: whether to leave the entry of a client, as the
 * listener sees it: without the entry, an answer would reach it from the listener's address. Returns the number of entries.
 */
export async function deleteListenerFlows(
  listeners: readonly SocketAddress[],
  netns: NetnsRef | undefined,
  keeps: (client: SocketAddress) => boolean = () => false,
): Promise<number> {
  if (listeners.length === 0) return 0;
  const places = new Set(listeners.map(hostPort));
  const families = new Set(listeners.map(({ ip }) => familyOf(ip)));
  const translated = { mask: FLOW_STATUS.destinationNat, value: FLOW_STATUS.destinationNat };
  using connection = new ConntrackConnection(netns);
  let deleted = 0;
  for (const family of families) {
    if (family === null) continue;
    const flows = connection
      .list(family, { protocol: PROTOCOL_NUMBER.UDP, status: translated })
      .filter(({ reply }) => places.has(hostPort({ ip: reply.source, port: reply.sourcePort })))
      .filter(({ reply }) => !keeps({ ip: reply.destination, port: reply.destinationPort }));
    deleted += await connection.delete(flows);
  }
  return deleted;
}

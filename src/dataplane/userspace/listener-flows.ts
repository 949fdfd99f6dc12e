import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { familyOf } from '../../lib/address.ts';
import { hostPort } from './balancer.ts';
import type { ListenAddress } from './render.ts';

/**
 * Deletes what connection tracking knows of UDP clients of these listeners: what such a client sends next is sent where
 * the rules of that moment say, instead of to a listener that is about to go. Returns how many entries there were.
 */
export async function deleteListenerFlows(
  listeners: readonly ListenAddress[],
  netns: NetnsRef | undefined,
): Promise<number> {
  if (listeners.length === 0) return 0;
  const places = new Set(listeners.map(({ address, port }) => hostPort({ ip: address, port })));
  const families = new Set(listeners.map(({ address }) => familyOf(address)));
  const translated = { mask: FLOW_STATUS.destinationNat, value: FLOW_STATUS.destinationNat };
  const connection = new ConntrackConnection(netns);
  try {
    let deleted = 0;
    for (const family of families) {
      if (family === null) continue;
      const flows = connection
        .list(family, { protocol: PROTOCOL_NUMBER.UDP, status: translated })
        .filter(({ reply }) => places.has(hostPort({ ip: reply.source, port: reply.sourcePort })));
      deleted += await connection.delete(flows);
    }
    return deleted;
  } finally {
    connection.close();
  }
}

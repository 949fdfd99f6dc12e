import type { ServerId, ShownRealServer } from '../../kernel/ipvs/codec.ts';
import { listIpvsConnections } from '../../kernel/ipvs/connection-list.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { ALIAS } from './frontend-plan.ts';

/*
 * When a real server is idle. While the mode is in use, it is as soon as IPVS has no connection to it, closed ones included,
 * which IPVS keeps for minutes: the counters never miss one, and a real server of weight 0 costs nothing meanwhile. After a
 * switch, it is as soon as no connection is open: until then the drain holds addresses and a table. Open and closed ones
 * differ only in the list of all connections, which can miss one.
 */

/** Returns true if IPVS has connections to a real server, open or closed. */
export const hasConnections = ({ activeConnections, inactiveConnections }: ShownRealServer): boolean =>
  activeConnections + inactiveConnections > 0;

/**
 * Returns true if an open connection uses the real server. `connected`: of `readConnected`, which may miss one while others
 * end, since the kernel continues a list by position; the real server's own count is too high for clients of the alias.
 */
export function hasOpenConnections(
  id: ServerId,
  { address, port, activeConnections }: ShownRealServer,
  connected: ReadonlySet<string>,
): boolean {
  if (!('address' in id)) return activeConnections > 0 || connected.has(`${address} ${port}`);
  if (connected.has(`${id.address} ${id.port} ${address} ${port}`)) return true;
  return activeConnections > 0 && id.address !== ALIAS[id.family];
}

/** States of closed connections. */
const CLOSED: ReadonlySet<string> = new Set(['TIME_WAIT', 'CLOSE', 'CLOSED', 'NONE']);

/**
 * Reads the real servers with open IPVS connections: "10.244.1.2 8080", and with the virtual address and port "10.96.0.1 80
 * 10.244.1.2 8080". Unlike the counters of real servers, it excludes closed connections, which IPVS keeps for minutes, and
 * those redirected to the alias address: once IPVS has written the real server to their connection tracking entry, only that
 * entry translates them (nf_nat_packet).
 */
export function readConnected(netns?: NetnsRef): Set<string> {
  const connected = new Set<string>();
  for (const { protocol, clientPort, virtual, real, state } of listIpvsConnections(netns)) {
    if (clientPort === 0 || protocol === 'UDP' || CLOSED.has(state)) continue;
    if (virtual.address === ALIAS.ipv4 || virtual.address === ALIAS.ipv6) continue;
    const endpoint = `${real.address} ${real.port}`;
    connected.add(endpoint);
    connected.add(`${virtual.address} ${virtual.port} ${endpoint}`);
  }
  return connected;
}

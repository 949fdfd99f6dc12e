import { listIpvsConnections } from '../../kernel/ipvs/connection-list.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { ALIAS } from './frontend-plan.ts';

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

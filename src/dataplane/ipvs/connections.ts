import { readFileSync } from 'node:fs';
import { inNetns, type NetnsRef } from '../../kernel/netns.ts';
import { addressBytes, formatAddress } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { ALIAS } from './frontend-plan.ts';

/** States of closed connections (net/netfilter/ipvs/ip_vs_proto_tcp.c, _sctp.c). */
const OVER: ReadonlySet<string> = new Set(['TIME_WAIT', 'CLOSE', 'CLOSED', 'NONE']);

/**
 * Reads the real servers with open IPVS connections: "10.244.1.2 8080", and with the virtual address and
 * port "10.96.0.1 80 10.244.1.2 8080". Unlike the counters of real servers, it excludes closed connections,
 * which IPVS keeps for minutes, and those redirected to the alias address: once IPVS has written the real
 * server to their connection tracking entry, only that entry translates them (nf_nat_packet).
 */
export function readConnected(netns?: NetnsRef): Set<string> {
  const text = inNetns(netns, read);
  const connected = new Set<string>();
  for (const line of text.split('\n').slice(1)) {
    // Pro FromIP FPrt ToIP TPrt DestIP DPrt State Expires …
    const [protocol, , clientPort, virtual, virtualPort, address, port, state] = line.trim().split(/\s+/);
    if (!virtual || !virtualPort || !address || !port || !state) continue;
    // The template of a persistent client is listed as a connection from port 0.
    if (clientPort === '0000' || protocol === 'UDP' || OVER.has(state)) continue;
    const asked = readAddress(virtual);
    if (asked === ALIAS.ipv4 || asked === ALIAS.ipv6) continue;
    const real = `${readAddress(address)} ${Number.parseInt(port, 16)}`;
    connected.add(real);
    connected.add(`${asked} ${Number.parseInt(virtualPort, 16)} ${real}`);
  }
  return connected;
}

function read(): string {
  try {
    return readFileSync('/proc/thread-self/net/ip_vs_conn', 'latin1');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

/** Parses "0AF40102", or all eight groups of an IPv6 address. */
function readAddress(text: string): string {
  if (/^[0-9A-Fa-f]{8}$/.test(text)) return formatAddress(Uint8Array.from(Buffer.from(text, 'hex')));
  const bytes = addressBytes(text.replace(/^\[|\]$/g, ''));
  return bytes ? formatAddress(bytes) : text;
}

import { readFileSync } from 'node:fs';
import { addressBytes, formatAddress } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { inNetns, type NetnsRef } from '../netns.ts';

/** A connection of IPVS, or the template of a persistent client. */
export interface IpvsFlow {
  readonly protocol: string;
  /** 0: a template. */
  readonly clientPort: number;
  readonly virtual: IpvsAddress;
  readonly real: IpvsAddress;
  /** As the kernel names it: net/netfilter/ipvs/ip_vs_proto_tcp.c, _udp.c, _sctp.c. */
  readonly state: string;
}

export interface IpvsAddress {
  readonly address: string;
  readonly port: number;
}

/** Lists the connections of a network namespace: none if the kernel lacks IPVS. */
export function listIpvsConnections(netns?: NetnsRef): Iterable<IpvsFlow> {
  return parseConnections(inNetns(netns, read));
}

function read(): string {
  try {
    return readFileSync('/proc/thread-self/net/ip_vs_conn', 'latin1');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

export function* parseConnections(text: string): Generator<IpvsFlow> {
  for (const line of text.split('\n').slice(1)) {
    // Pro FromIP FPrt ToIP TPrt DestIP DPrt State Expires …
    const [protocol = '', , clientPort = '', virtual, virtualPort = '', real, realPort = '', state] = line
      .trim()
      .split(/\s+/);
    if (!virtual || !real || !state) continue;
    yield {
      protocol,
      clientPort: Number.parseInt(clientPort, 16),
      virtual: { address: readAddress(virtual), port: Number.parseInt(virtualPort, 16) },
      real: { address: readAddress(real), port: Number.parseInt(realPort, 16) },
      state,
    };
  }
}

/** Parses "0AF40102", or all eight groups of an IPv6 address. */
function readAddress(text: string): string {
  if (/^[0-9A-Fa-f]{8}$/.test(text)) return formatAddress(Uint8Array.from(Buffer.from(text, 'hex')));
  const bytes = addressBytes(text.replace(/^\[|\]$/g, ''));
  return bytes ? formatAddress(bytes) : text;
}

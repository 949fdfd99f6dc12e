import { formatAddress, type IPFamily } from '../../lib/address.ts';
import { readAttributes, readBe16, readBe32 } from '../netlink/attributes.ts';

// linux/netfilter/nfnetlink_conntrack.h, nf_conntrack_common.h

export const NFNL_SUBSYS_CTNETLINK = 1;
export const CTNL_MSG = { new: 0, get: 1, delete: 2, statistics: 5 } as const;
export const CONNTRACK_GROUP = { new: 1, update: 2, destroy: 3 } as const;

export const CTA = {
  tupleOriginal: 1,
  tupleReply: 2,
  status: 3,
  protocolInfo: 4,
  timeout: 7,
  mark: 8,
  id: 12,
  zone: 18,
  filter: 25,
  statusMask: 26,
} as const;

/** Attributes inside these, by their enums: CTA_TUPLE_IP is `CTA_TUPLE.address`, CTA_IP_V4_SRC `CTA_IP.source4`. */
export const CTA_TUPLE = { address: 1, protocol: 2 } as const;
export const CTA_IP = { source4: 1, destination4: 2, source6: 3, destination6: 4 } as const;
export const CTA_PROTO = { number: 1, sourcePort: 2, destinationPort: 3 } as const;
export const CTA_PROTOINFO = { tcp: 1 } as const;
export const CTA_PROTOINFO_TCP = { state: 1 } as const;
export const CTA_FILTER = { originalFlags: 1, replyFlags: 2 } as const;

/** Bits of a flow's status (enum ip_conntrack_status). */
export const FLOW_STATUS = {
  seenReply: 2,
  assured: 4,
  confirmed: 8,
  sourceNat: 0x10,
  destinationNat: 0x20,
} as const;

/** One direction of a flow. */
export interface Tuple {
  readonly source: string;
  readonly destination: string;
  readonly protocol: number;
  /** 0 for protocols without ports. */
  readonly sourcePort: number;
  readonly destinationPort: number;
}

/** An entry of the kernel's connection tracking table. */
export interface Flow {
  readonly family: IPFamily;
  readonly original: Tuple;
  readonly reply: Tuple;
  readonly status: number;
  readonly mark: number;
  readonly zone: number;
  /** Distinguishes an entry from a later one with the same addresses. */
  readonly id: number;
  /** TCP's state (enum tcp_conntrack): 1 SYN_SENT, 2 SYN_RECV, 3 ESTABLISHED …; null for others. */
  readonly tcpState: number | null;
}

/** Reads a ctnetlink message's payload (after nfgenmsg's 4 bytes); null for flows of other families. */
export function readFlow(payload: Uint8Array): Flow | null {
  const family = payload[0] === 2 ? 'ipv4' : payload[0] === 10 ? 'ipv6' : null;
  const attributes = readAttributes(payload.subarray(4));
  const original = readTuple(attributes.get(CTA.tupleOriginal));
  const reply = readTuple(attributes.get(CTA.tupleReply));
  if (!family || !original || !reply) return null;
  const status = attributes.get(CTA.status);
  const mark = attributes.get(CTA.mark);
  const zone = attributes.get(CTA.zone);
  const id = attributes.get(CTA.id);
  const info = attributes.get(CTA.protocolInfo);
  const tcp = info && readAttributes(info).get(CTA_PROTOINFO.tcp);
  const state = tcp && readAttributes(tcp).get(CTA_PROTOINFO_TCP.state);
  return {
    family,
    original,
    reply,
    status: status ? readBe32(status) : 0,
    mark: mark ? readBe32(mark) : 0,
    zone: zone ? readBe16(zone) : 0,
    id: id ? readBe32(id) : 0,
    tcpState: state?.[0] ?? null,
  };
}

function readTuple(bytes: Uint8Array | undefined): Tuple | null {
  if (!bytes) return null;
  const attributes = readAttributes(bytes);
  const addresses = readAttributes(attributes.get(CTA_TUPLE.address) ?? new Uint8Array(0));
  const protocol = readAttributes(attributes.get(CTA_TUPLE.protocol) ?? new Uint8Array(0));
  const source = addresses.get(CTA_IP.source4) ?? addresses.get(CTA_IP.source6);
  const destination = addresses.get(CTA_IP.destination4) ?? addresses.get(CTA_IP.destination6);
  const number = protocol.get(CTA_PROTO.number)?.[0];
  if (!source || !destination || number === undefined) return null;
  const sourcePort = protocol.get(CTA_PROTO.sourcePort);
  const destinationPort = protocol.get(CTA_PROTO.destinationPort);
  return {
    source: formatAddress(source),
    destination: formatAddress(destination),
    protocol: number,
    sourcePort: sourcePort ? readBe16(sourcePort) : 0,
    destinationPort: destinationPort ? readBe16(destinationPort) : 0,
  };
}

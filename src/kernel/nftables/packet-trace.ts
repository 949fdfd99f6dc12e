import { randomBytes } from 'node:crypto';
import { readAttributes, readBe32, readBe64, readText } from '../netlink/attributes.ts';
import { NETLINK_NETFILTER, type NetlinkMessage, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { NftConnection } from './connection.ts';
import { NFNL_SUBSYS_NFTABLES, NFPROTO, NFTA, TABLE_FLAG } from './constants.ts';
import { BASE, CMP, compare, immediate, META, meta, payload, setMeta } from './expressions.ts';
import { PRIORITY } from './priorities.ts';

/** The marks by which packets are recognized. */
export interface TracedBytes {
  readonly family: 'ipv4' | 'ipv6';
  readonly protocol: number;
  /** Bytes from an offset of the TCP or UDP header on, at most 16, which lie between two values; one of these is enough. */
  readonly oneOf: readonly { readonly offset: number; readonly low: Uint8Array; readonly high: Uint8Array }[];
}

/** The end of a packet's way through nf_tables. */
export interface PacketEnd {
  /** NFPROTO of the table. */
  readonly family: number;
  readonly table: string;
  readonly chain: string;
  /** Null: the policy of the chain. */
  readonly rule: bigint | null;
}

// linux/netfilter/nf_tables.h, nfnetlink.h
const NFT_MSG_TRACE = 17;
const NFNLGRP_NFTRACE = 9;
const NFT_META_NFTRACE = 12;
const TRACE = { table: 1, chain: 2, handle: 3, type: 4, verdict: 5, policy: 16 } as const;
const TYPE_POLICY = 1;
const NF_DROP = 0;
const MAX_ENDS = 64;

/**
 * Lets the kernel report the rule that drops the packets with these bytes (`meta nftrace`), in a namespace: by a table that belongs
 * to this process and that the kernel removes with it. Throws FairleadError if the kernel has no such tables (before Linux 5.12).
 */
export function tracePackets(
  netns: NetnsRef,
  { family, protocol, oneOf }: TracedBytes,
): { ends(): readonly PacketEnd[]; close(): void } {
  const ends: PacketEnd[] = [];
  const events = new NetlinkSocket({ protocol: NETLINK_NETFILTER, netns });
  const connection = new NftConnection(netns);
  const close = () => {
    connection.close();
    events.close();
  };
  try {
    events.subscribe(
      [NFNLGRP_NFTRACE],
      (message) => {
        const end = readEnd(message);
        if (end && ends.length < MAX_ENDS) ends.push(end);
      },
      () => {},
    );
    const name = `fairlead-trace-${randomBytes(4).toString('hex')}`;
    const batch = connection.batch(NFPROTO[family]);
    batch.addTable(name, TABLE_FLAG.owner);
    for (const hook of ['prerouting', 'output'] as const) {
      batch.addChain(name, hook, { type: 'filter', hook, priority: PRIORITY.tracing });
      for (const { offset, low, high } of oneOf) {
        batch.addRule(name, hook, [
          meta(META.protocol, 0),
          compare(0, CMP.equal, Uint8Array.of(protocol)),
          payload(BASE.transport, offset, low.length, 0),
          compare(0, CMP.atLeast, low),
          compare(0, CMP.atMost, high),
          immediate(Uint8Array.of(1), 0),
          setMeta(NFT_META_NFTRACE, 0),
        ]);
      }
    }
    connection.commitSync(batch);
    return { ends: () => ends, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** Reads an event of a packet's way; null: the packet goes on. */
function readEnd({ type, payload: bytes }: NetlinkMessage): PacketEnd | null {
  if (type >> 8 !== NFNL_SUBSYS_NFTABLES || (type & 0xff) !== NFT_MSG_TRACE) return null;
  const attributes = readAttributes(bytes.subarray(4));
  const [table, chain, handle] = [TRACE.table, TRACE.chain, TRACE.handle].map((one) => attributes.get(one));
  const kind = attributes.get(TRACE.type);
  if (!table || !chain || !kind) return null;
  const isPolicy = readBe32(kind) === TYPE_POLICY;
  const verdict = attributes.get(TRACE.verdict);
  const code = isPolicy
    ? attributes.get(TRACE.policy)
    : verdict && readAttributes(verdict).get(NFTA.verdict.code);
  if (!code || readBe32(code) !== NF_DROP) return null;
  return {
    family: bytes[0] ?? 0,
    table: readText(table),
    chain: readText(chain),
    rule: isPolicy || !handle ? null : readBe64(handle),
  };
}

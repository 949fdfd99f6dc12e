import { readAttributes, readBe32, readText } from '../netlink/attributes.ts';
import { NETLINK_NETFILTER, type NetlinkMessage, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG, NFTA } from './constants.ts';

/** A committed transaction. */
export interface NftTransaction {
  /** Sequence number of one of its messages. */
  readonly sequence: number;
  /** The process that made it, by its number in the initial PID namespace; 0 if unknown. */
  readonly pid: number;
  /** "FAMILY table" of each changed table, FAMILY being the protocol family's number. */
  readonly tables: ReadonlySet<string>;
}

/**
 * Reports the transactions of a namespace. `onOverrun`: the kernel dropped events, so anything may have
 * changed. A subscriber slows down large transactions of every process, since the kernel formats each
 * element for it.
 */
export function watchNftables(
  onTransaction: (transaction: NftTransaction) => void,
  onOverrun: () => void,
  netns?: NetnsRef,
): { close(): void } {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    receiveBuffer: 16 << 20,
    netns,
  });
  let tables = new Set<string>();
  const onMessage = ({ type, payload, sequence }: NetlinkMessage) => {
    if (type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
    const kind = type & 0xff;
    const attributes = readAttributes(payload.subarray(4));
    if (kind !== NFT_MSG.newGeneration) {
      const table = attributes.get(NFTA.table.name);
      if (table) tables.add(`${payload[0]} ${readText(table)}`);
      return;
    }
    const pid = attributes.get(NFTA.generation.processId);
    const transaction: NftTransaction = {
      sequence,
      pid: pid ? readBe32(pid) : 0,
      tables,
    };
    tables = new Set();
    onTransaction(transaction);
  };
  socket.subscribe([NFNLGRP_NFTABLES], onMessage, onOverrun);
  return socket;
}

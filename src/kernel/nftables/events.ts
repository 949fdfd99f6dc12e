import { readAttributes, readBe32, readText } from '../netlink/attributes.ts';
import { NETLINK_NETFILTER, type NetlinkMessage, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES, NFT_MSG, NFTA } from './constants.ts';

/** A committed transaction, as its end tells it. */
export interface NftTransaction {
  readonly generation: number;
  /** Of one of its messages. */
  readonly sequence: number;
  /** Of the process that made it, as seen from the kernel's first pid namespace; 0 when unknown. */
  readonly pid: number;
  readonly process: string;
  /** "FAMILY table" of the tables it touched, FAMILY being the protocol family's number. */
  readonly tables: ReadonlySet<string>;
  /** Messages other than of elements: rules, chains, sets, tables. */
  readonly structural: boolean;
}

/**
 * Reports the transactions of a namespace. `onOverrun`: the kernel dropped events, anything may have changed.
 * A subscriber makes large transactions of everyone dearer, since the kernel writes out each element for it.
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
  let structural = false;
  const onMessage = ({ type, payload, sequence }: NetlinkMessage) => {
    if (type >> 8 !== NFNL_SUBSYS_NFTABLES) return;
    const kind = type & 0xff;
    const attributes = readAttributes(payload.subarray(4));
    if (kind !== NFT_MSG.newGeneration) {
      const table = attributes.get(NFTA.table.name);
      if (table) tables.add(`${payload[0]} ${readText(table)}`);
      if (kind !== NFT_MSG.newElements && kind !== NFT_MSG.delElements) structural = true;
      return;
    }
    const id = attributes.get(NFTA.generation.id);
    const pid = attributes.get(NFTA.generation.processId);
    const name = attributes.get(NFTA.generation.processName);
    const transaction: NftTransaction = {
      sequence,
      generation: id ? readBe32(id) : 0,
      pid: pid ? readBe32(pid) : 0,
      process: name ? readText(name) : '',
      tables,
      structural,
    };
    tables = new Set();
    structural = false;
    onTransaction(transaction);
  };
  socket.subscribe([NFNLGRP_NFTABLES], onMessage, onOverrun);
  return socket;
}

import type { NetnsRef } from '../kernel/netns.ts';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';

/**
 * The nf_tables table of a fault that a user has planted with `fairlead fault`. In a pod's namespace it drops all packets that
 * arrive, except over loopback; in a node's namespace, those that pass the uplink in either direction.
 */
export const FAULT_TABLE = 'fairlead-fault';

/** Reports whether a network namespace has a planted fault, in either family. Throws the errors of netlink. */
export function hasFaultTable(netns: NetnsRef): boolean {
  const connection = new NftConnection(netns);
  try {
    return [NFPROTO.ipv4, NFPROTO.ipv6].some((family) =>
      connection.tables(family).some(({ name }) => name === FAULT_TABLE),
    );
  } finally {
    connection.close();
  }
}

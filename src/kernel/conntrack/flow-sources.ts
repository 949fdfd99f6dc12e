import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { anyFamily } from './connection.ts';
import { CTNL_MSG, NFNL_SUBSYS_CTNETLINK, readFlow } from './flow.ts';

/**
 * Returns the sources of about `max` tracked connections of a namespace, of both families; of all of them if there are fewer. The
 * kernel lists its hash table from the start, and the key of the hash is secret (hash_conntrack_raw): the first connections are a
 * random sample, which no sender can choose.
 */
export function sampleFlowSources(netns: NetnsRef | undefined, max: number): string[] {
  const socket = new NetlinkSocket({ protocol: NETLINK_NETFILTER, netns });
  return socket
    .dumpFirst((NFNL_SUBSYS_CTNETLINK << 8) | CTNL_MSG.get, anyFamily(), max, 'flows')
    .flatMap((message) => readFlow(message.payload)?.original.source ?? []);
}

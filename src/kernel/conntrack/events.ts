import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import { CONNTRACK_GROUP, CTNL_MSG, type Flow, NFNL_SUBSYS_CTNETLINK, readFlow } from './flow.ts';

const NLM_F_CREATE_OR_EXCL = 0x600;

export type FlowEventKind = 'new' | 'update' | 'destroy';

/**
 * Reports changes of connection tracking of these kinds, for flows that `wanted` accepts (default: all).
 * `onOverrun`: the kernel dropped events.
 */
export function watchFlows(
  kinds: readonly FlowEventKind[],
  onFlow: (kind: FlowEventKind, flow: Flow) => void,
  onOverrun: () => void,
  options: { readonly netns?: NetnsRef | undefined; readonly wanted?: (flow: Flow) => boolean } = {},
): { close(): void } {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    netns: options.netns,
  });
  const groups = kinds.map((kind) => CONNTRACK_GROUP[kind]);
  socket.subscribe(
    groups,
    ({ type, flags, payload }) => {
      if (type >> 8 !== NFNL_SUBSYS_CTNETLINK) return;
      const flow = readFlow(payload);
      if (!flow || options.wanted?.(flow) === false) return;
      const kind =
        (type & 0xff) === CTNL_MSG.delete ? 'destroy' : flags & NLM_F_CREATE_OR_EXCL ? 'new' : 'update';
      onFlow(kind, flow);
    },
    onOverrun,
  );
  return socket;
}

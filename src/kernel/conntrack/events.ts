import { createFilterProgram, OP } from '../filter-program.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import type { FilterInstruction } from '../socket-filter.ts';
import { CONNTRACK_GROUP, CTNL_MSG, type Flow, NFNL_SUBSYS_CTNETLINK, readFlow } from './flow.ts';

const NLM_F_CREATE_OR_EXCL = 0x600;

/** A subscription to changes of flows. */
export interface FlowEvents {
  /**
   * From now on reports only 1 in `share` flows, with all their events; a power of two. Events that wait are dropped. Throws
   * FairleadError.
   */
  sample(share: number): void;
  close(): void;
}

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
): FlowEvents {
  const socket = new NetlinkSocket({
    protocol: NETLINK_NETFILTER,
    netns: options.netns,
  });
  const groups = kinds.map((kind) => CONNTRACK_GROUP[kind]);
  let isDiscarding = false;
  socket.subscribe(
    groups,
    ({ type, flags, payload }) => {
      if (isDiscarding || type >> 8 !== NFNL_SUBSYS_CTNETLINK) return;
      const flow = readFlow(payload);
      if (!flow || options.wanted?.(flow) === false) return;
      const kind =
        (type & 0xff) === CTNL_MSG.delete ? 'destroy' : flags & NLM_F_CREATE_OR_EXCL ? 'new' : 'update';
      onFlow(kind, flow);
    },
    onOverrun,
  );
  return {
    sample(share) {
      socket.setFilter(sampleFilter(share));
      // Events that have passed the previous filter and wait would cost as much as before.
      isDiscarding = true;
      socket.readEvents(Number.POSITIVE_INFINITY);
      isDiscarding = false;
    },
    close: () => socket.close(),
  };
}

const { LD, LDX, RET, WORD, ABS, IND, JEQ, JSET, TAX, MISC } = OP;
/** Loads what the kernel knows of a packet (SKF_AD_OFF in linux/filter.h); here: looks for an attribute (SKF_AD_NLATTR). */
const FIND_ATTRIBUTE = 0xfffff000 + 12;
/** struct nlmsghdr and struct nfgenmsg, before the attributes. */
const ATTRIBUTES_AT = 20;
/** enum ctattr_type: a hash of the entry (nf_ct_get_id), equal in all its events. */
const CTA_ID = 12;
const WHOLE_MESSAGE = 0xffffffff;

/** Renders a filter that lets 1 in `share` flows through, with all their events; a power of two. */
function sampleFilter(share: number): FilterInstruction[] {
  const { add, jumpIf, label, build } = createFilterProgram();
  // The argument of the search: A is its start, X the type.
  add(LD | WORD, ATTRIBUTES_AT);
  add(LDX | WORD, CTA_ID);
  add(LD | WORD | ABS, FIND_ATTRIBUTE);
  jumpIf(JEQ, 0, 'pass', null);
  add(MISC | TAX, 0);
  add(LD | WORD | IND, ATTRIBUTE_HEADER_BYTES);
  jumpIf(JSET, share - 1, null, 'pass');
  add(RET, 0);
  label('pass');
  add(RET, WHOLE_MESSAGE);
  return build();
}

/** struct nlattr. */
const ATTRIBUTE_HEADER_BYTES = 4;

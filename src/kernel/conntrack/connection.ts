import { addressBytes, type IPFamily } from '../../lib/address.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { MessageWriter, readAttributes, readBe32 } from '../netlink/attributes.ts';
import {
  NETLINK_NETFILTER,
  type NetlinkMessage,
  NetlinkSocket,
  NLM_F_ACK,
  NLM_F_REQUEST,
  refusalError,
} from '../netlink/socket.ts';
import type { NetnsRef } from '../netns.ts';
import {
  CTA,
  CTA_FILTER,
  CTA_IP,
  CTA_PROTO,
  CTA_PROTOINFO,
  CTA_PROTOINFO_TCP,
  CTA_TUPLE,
  CTNL_MSG,
  FLOW_STATUS,
  type Flow,
  NFNL_SUBSYS_CTNETLINK,
  readFlow,
  type Tuple,
} from './flow.ts';

const messageType = (message: number) => (NFNL_SUBSYS_CTNETLINK << 8) | message;
const FAMILY_NUMBER: Readonly<Record<IPFamily, number>> = { ipv4: 2, ipv6: 10 };
/** All families. */
const AF_UNSPEC = 0;
const ENOENT = 2;
const EBUSY = 16;
/** linux/net/netfilter/nf_internals.h */
const FILTER_SOURCE = 1 << 0;
const FILTER_DESTINATION = 1 << 1;
const FILTER_PROTOCOL = 1 << 3;
const FILTER_DESTINATION_PORT = 1 << 5;
/** Deletions sent in one batch. */
const BATCH = 500;
/** The number of flows in the table (enum ctattr_stats_global). */
const STATISTICS_ENTRIES = 1;
/** Below it, reading all flows costs less than walking the machine's hash table once more. */
const FEW_FLOWS = 2000;

/**
 * Selects the flows to list. Older kernels ignore some of the fields, so the result is filtered again here.
 */
export interface FlowFilter {
  readonly protocol?: number;
  /** Destination of the flow's first packet. */
  readonly destination?: string;
  readonly source?: string;
  /** The ends of the answers: they differ if the flow's addresses are translated. */
  readonly replySource?: string;
  readonly replyDestination?: string;
  readonly destinationPort?: number;
  /** Only flows whose status, masked, has this value. */
  readonly status?: { readonly mask: number; readonly value: number };
}

/** Returns the request for the flows of all families, without attributes. */
export const anyFamily = (): Uint8Array => new MessageWriter(4).u8(AF_UNSPEC).u8(0).u16(0).bytes();
const flowsIn = (messages: readonly NetlinkMessage[]): Flow[] =>
  messages.flatMap(({ payload }) => readFlow(payload) ?? []);

/** A netlink socket to the connection tracking table of a network namespace. */
export class ConntrackConnection {
  readonly #socket: NetlinkSocket;

  constructor(netns?: NetnsRef) {
    this.#socket = new NetlinkSocket({
      protocol: NETLINK_NETFILTER,
      netns,
    });
  }

  list(family: IPFamily, filter: FlowFilter = {}): Flow[] {
    const writer = new MessageWriter(128);
    writer.u8(FAMILY_NUMBER[family]).u8(0).u16(0);
    writeFilter(writer, family, filter);
    const flows: Flow[] = [];
    for (const { payload } of this.#socket.dump(messageType(CTNL_MSG.get), writer.bytes(), 'flows')) {
      const flow = readFlow(payload);
      if (flow && passes(flow, filter)) flows.push(flow);
    }
    return flows;
  }

  /**
   * Lists the flows of all families in one walk of the table, if there are few; null: there are many. The kernel walks the hash
   * table of the whole machine, bucket by bucket, for each listing: some ten milliseconds for the usual 262,144 buckets.
   */
  listFew(): Flow[] | null {
    const count = this.count();
    if (count === 0 || count > FEW_FLOWS) return count === 0 ? [] : null;
    return flowsIn(this.#socket.dump(messageType(CTNL_MSG.get), anyFamily(), 'flows'));
  }

  /** Works like `listFew`, on a thread. Until it resolves, other requests on this connection throw EBUSY. */
  async listFewAsync(): Promise<Flow[] | null> {
    const count = this.count();
    if (count === 0 || count > FEW_FLOWS) return count === 0 ? [] : null;
    return flowsIn(await this.#socket.dumpAsync(messageType(CTNL_MSG.get), anyFamily(), 'flows'));
  }

  /** Lists the flows of the families that pass one of the filters; few ones in one walk of the table. */
  listAny(families: readonly IPFamily[], filters: readonly FlowFilter[]): Flow[] {
    return this.#choose(this.listFew(), families, filters);
  }

  /** Works like `listAny`, on a thread if there are few. */
  async listAnyAsync(families: readonly IPFamily[], filters: readonly FlowFilter[]): Promise<Flow[]> {
    return this.#choose(await this.listFewAsync(), families, filters);
  }

  #choose(few: Flow[] | null, families: readonly IPFamily[], filters: readonly FlowFilter[]): Flow[] {
    if (few === null)
      return families.flatMap((family) => filters.flatMap((filter) => this.list(family, filter)));
    return few.filter(
      (flow) => families.includes(flow.family) && filters.some((filter) => passes(flow, filter)),
    );
  }

  /** Returns the number of flows in the table, of both families. */
  count(): number {
    const [answer] = this.#socket.request(messageType(CTNL_MSG.statistics), 0, new Uint8Array(4), 'flows');
    // The address family, version and resource of nfnetlink come before the attributes.
    const entries = answer && readAttributes(answer.payload.subarray(4)).get(STATISTICS_ENTRIES);
    return entries ? readBe32(entries) : Number.POSITIVE_INFINITY;
  }

  /** Looks the flow up; returns null if it no longer exists or if another flow uses its addresses. */
  find(flow: Flow): Flow | null {
    const writer = new MessageWriter(128);
    writer.u8(FAMILY_NUMBER[flow.family]).u8(0).u16(0);
    writeTuple(writer, CTA.tupleOriginal, flow.original);
    if (flow.zone !== 0) writer.attributeBe16(CTA.zone, flow.zone);
    try {
      const [answer] = this.#socket.request(messageType(CTNL_MSG.get), 0, writer.bytes(), 'flow');
      const found = answer ? readFlow(answer.payload) : null;
      return found?.id === flow.id ? found : null;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return null;
      throw error;
    }
  }

  /** Deletes flows, hundreds at a time; missing ones are not an error. Returns how many were deleted. */
  async delete(flows: readonly Flow[]): Promise<number> {
    const deleted = await this.#batch(flows, CTNL_MSG.delete, 'delete flows', [ENOENT], (writer, { id }) => {
      if (id !== 0) writer.attributeBe32(CTA.id, id);
    });
    return deleted.length;
  }

  /**
   * Deletes flows of TCP that have not been answered, as `delete` does; returns these. A flow that has been answered since it was
   * read stays. The kernel has no deletion with a condition, but it refuses to unset SEEN_REPLY, and changes the state after that
   * (ctnetlink_change_conntrack): an entry without a state takes no answer until it is deleted.
   */
  async deleteUnanswered(flows: readonly Flow[]): Promise<readonly Flow[]> {
    const stateless = await this.#batch(
      flows,
      CTNL_MSG.new,
      'close flows',
      [ENOENT, EBUSY],
      (writer, { status }) => {
        writer.attributeBe32(CTA.status, status & ~FLOW_STATUS.seenReply);
        writer.nested(CTA.protocolInfo, () =>
          writer.nested(CTA_PROTOINFO.tcp, () => writer.attributeU8(CTA_PROTOINFO_TCP.state, 0)),
        );
      },
    );
    await this.delete(stateless);
    return stateless;
  }

  /**
   * Sends a message for each of the flows, hundreds at a time; returns those that the kernel accepted, and ignores refusals
   * with one of the errors in `tolerated`.
   */
  async #batch(
    flows: readonly Flow[],
    message: number,
    purpose: string,
    tolerated: readonly number[],
    write: (writer: MessageWriter, flow: Flow) => void,
  ): Promise<Flow[]> {
    const accepted: Flow[] = [];
    for (let from = 0; from < flows.length; from += BATCH) {
      const part = flows.slice(from, from + BATCH);
      const writer = new MessageWriter(part.length * 160);
      const sent = new Map<number, Flow>();
      let last = 0;
      for (const [i, flow] of part.entries()) {
        last = this.#socket.nextSequence();
        sent.set(last, flow);
        const flags = NLM_F_REQUEST | (i === part.length - 1 ? NLM_F_ACK : 0);
        const start = writer.beginMessage(messageType(message), flags, last);
        writer.u8(FAMILY_NUMBER[flow.family]).u8(0).u16(0);
        writeTuple(writer, CTA.tupleOriginal, flow.original);
        if (flow.zone !== 0) writer.attributeBe16(CTA.zone, flow.zone);
        write(writer, flow);
        writer.endMessage(start);
      }
      for (const refusal of await this.#socket.batch(writer.bytes(), last)) {
        if (!tolerated.includes(refusal.errno)) throw refusalError(refusal, purpose);
        sent.delete(refusal.sequence);
      }
      for (const flow of sent.values()) accepted.push(flow);
    }
    return accepted;
  }

  close(): void {
    this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function writeFilter(writer: MessageWriter, family: IPFamily, filter: FlowFilter): void {
  const { protocol, destinationPort, status } = filter;
  // Linux 6.18 inverts the comparison of IPv6 addresses (ctnetlink_filter_match_tuple): they are compared
  // here.
  const v4 = (address: string | undefined) => (family === 'ipv4' ? address : undefined);
  const original = { source: v4(filter.source), destination: v4(filter.destination) };
  const reply = { source: v4(filter.replySource), destination: v4(filter.replyDestination) };
  const flags =
    endFlags(original) |
    (protocol === undefined ? 0 : FILTER_PROTOCOL) |
    (destinationPort === undefined ? 0 : FILTER_DESTINATION_PORT);
  const replyFlags = endFlags(reply);
  if (flags !== 0)
    writer.nested(CTA.tupleOriginal, () => {
      writeEnds(writer, original);
      if (protocol !== undefined) {
        writer.nested(CTA_TUPLE.protocol, () => {
          writer.attributeU8(CTA_PROTO.number, protocol);
          if (destinationPort !== undefined) writer.attributeBe16(CTA_PROTO.destinationPort, destinationPort);
        });
      }
    });
  if (replyFlags !== 0) writer.nested(CTA.tupleReply, () => writeEnds(writer, reply));
  if ((flags | replyFlags) !== 0)
    writer.nested(CTA.filter, () => {
      writer.attributeU32(CTA_FILTER.originalFlags, flags);
      writer.attributeU32(CTA_FILTER.replyFlags, replyFlags);
    });
  if (status) {
    writer.attributeBe32(CTA.status, status.value);
    writer.attributeBe32(CTA.statusMask, status.mask);
  }
}

interface FilterEnds {
  readonly source: string | undefined;
  readonly destination: string | undefined;
}

const endFlags = ({ source, destination }: FilterEnds): number =>
  (source === undefined ? 0 : FILTER_SOURCE) | (destination === undefined ? 0 : FILTER_DESTINATION);

function writeEnds(writer: MessageWriter, { source, destination }: FilterEnds): void {
  if (source === undefined && destination === undefined) return;
  writer.nested(CTA_TUPLE.address, () => {
    if (source !== undefined) writer.attribute(CTA_IP.source4, bytesOf(source));
    if (destination !== undefined) writer.attribute(CTA_IP.destination4, bytesOf(destination));
  });
}

function passes({ original, reply, status }: Flow, filter: FlowFilter): boolean {
  return (
    (filter.protocol === undefined || original.protocol === filter.protocol) &&
    (filter.source === undefined || original.source === filter.source) &&
    (filter.destination === undefined || original.destination === filter.destination) &&
    (filter.replySource === undefined || reply.source === filter.replySource) &&
    (filter.replyDestination === undefined || reply.destination === filter.replyDestination) &&
    (filter.destinationPort === undefined || original.destinationPort === filter.destinationPort) &&
    (filter.status === undefined || (status & filter.status.mask) === filter.status.value)
  );
}

function writeTuple(writer: MessageWriter, type: number, tuple: Tuple): void {
  const source = bytesOf(tuple.source);
  const v6 = source.length === 16;
  writer.nested(type, () => {
    writer.nested(CTA_TUPLE.address, () => {
      writer.attribute(v6 ? CTA_IP.source6 : CTA_IP.source4, source);
      writer.attribute(v6 ? CTA_IP.destination6 : CTA_IP.destination4, bytesOf(tuple.destination));
    });
    writer.nested(CTA_TUPLE.protocol, () => {
      writer.attributeU8(CTA_PROTO.number, tuple.protocol);
      writer.attributeBe16(CTA_PROTO.sourcePort, tuple.sourcePort);
      writer.attributeBe16(CTA_PROTO.destinationPort, tuple.destinationPort);
    });
  });
}

function bytesOf(address: string): Uint8Array {
  const bytes = addressBytes(address);
  if (bytes) return bytes;
  throw new FairleadError(`${JSON.stringify(address)} is not an IP address`, {
    op: 'find flows',
    code: 'EINVAL',
  });
}

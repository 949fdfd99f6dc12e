import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow, readFlow } from '../kernel/conntrack/flow.ts';
import { watchPendingConnections } from '../kernel/conntrack/pending-connections.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { readSysctl } from '../kernel/sysctl.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { EJECTION_RULES } from './ejection-rules.ts';
import type { Outcome } from './outcome.ts';
import { createPendingTable } from './pending-table.ts';

export interface PendingWatchOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Returns true for connections to a Service with failover; others are ignored. */
  readonly wanted: (connection: PendingConnection) => boolean;
  /** Returns true while answers of endpoints matter; otherwise answered connections are not decoded. */
  readonly wantsSuccess: () => boolean;
  readonly onOutcome: (outcome: Outcome) => void;
  /** Called with the number of unanswered connections whose entries were deleted. For metrics. */
  readonly onUnanswered?: (count: number) => void;
  /** The kernel dropped events. For metrics. */
  readonly onOverrun?: () => void;
}

export type PendingConnection = Omit<Outcome, 'kind'>;

const { agentUnansweredMs: UNANSWERED_MS } = EJECTION_RULES;
/** Connections are checked together when the oldest is due. */
const GATHER_MS = 10;
const MAX_PENDING = 32_768;
/** Events to read before a decision, so that a received answer counts even if this process is late. */
const MAX_EVENTS = 50_000;
/** From this number of flows on, one listing is cheaper than single lookups. */
const MAX_LOOKUPS = 200;
/**
 * The maximum rate of events per second, at about 10 µs each: beyond it, half of the connections are sampled, then a
 * quarter, and so on. When a sampled connection to an endpoint fails, the others are listed.
 */
const MAX_EVENT_RATE = 5000;
const MAX_SAMPLING_MASK = 0xff;
const RATE_MS = 1000;
const EVENTS = 'net.netfilter.nf_conntrack_events';
const TCP = 6;
const SYN_SENT = 1;
/** An overrun requires a listing, at most this often. */
const LIST_AGAIN_MS = 2000;
/** While sampling, the other connections to a failed endpoint are listed at most this often. */
const LIST_OTHERS_MS = 500;

/**
 * Detects through connection tracking events which endpoints answer, refuse or do not answer, and deletes
 * the entries of unanswered connections, so that the client's next SYN becomes a new flow to an endpoint
 * that the rules then choose.
 */
export function startPendingWatch(options: PendingWatchOptions): { close(): void } {
  const { families, netns, clock, logger, wanted, wantsSuccess, onOutcome } = options;
  const connection = new ConntrackConnection(netns);
  const pending = createPendingTable(MAX_PENDING);
  let cancel: (() => void) | null = null;
  let closed = false;
  let listedAt = Number.NEGATIVE_INFINITY;
  let othersListedAt = Number.NEGATIVE_INFINITY;
  let samplingMask = 0;
  let events = 0;
  let countedSince = clock.now();

  const watch = watchPendingConnections(
    {
      begun(id, event) {
        events++;
        pending.begin(id, event, clock.now());
        schedule();
      },
      answered(id) {
        events++;
        const event = pending.take(id);
        if (event && wantsSuccess()) report('success', readFlow(event));
      },
      ended(id) {
        const event = pending.take(id);
        if (event) report('reset', readFlow(event));
      },
      overrun() {
        pending.clear();
        options.onOverrun?.();
        logger.debug({}, 'connection tracking events were lost');
        list();
      },
    },
    netns,
  );

  function report(kind: Outcome['kind'], flow: Flow | null): void {
    if (!flow) return;
    const connection = connectionOf(flow);
    if (wanted(connection)) onOutcome({ kind, ...connection });
  }

  /** Lists pending connections whose events were not seen. */
  function list(): void {
    const now = clock.now();
    if (now - listedAt < LIST_AGAIN_MS) return;
    listedAt = now;
    try {
      for (const flow of families.flatMap(unanswered)) {
        if (wanted(connectionOf(flow))) listed.push({ flow, at: now });
      }
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'failed to list pending connections');
    }
    schedule();
  }
  /** Listed flows, which are looked up again when they are due. */
  let listed: { readonly flow: Flow; readonly at: number }[] = [];

  function unanswered(family: IPFamily): Flow[] {
    const status = { mask: FLOW_STATUS.seenReply, value: 0 };
    return connection.list(family, { protocol: TCP, status }).filter(isUnanswered);
  }

  function schedule(): void {
    if (cancel || closed) return;
    const oldest = pending.oldest ?? listed[0]?.at ?? null;
    if (oldest === null) return;
    const wait = Math.max(GATHER_MS, oldest + UNANSWERED_MS + GATHER_MS - clock.now());
    cancel = clock.after(wait, () => {
      cancel = null;
      void look()
        .catch((error: unknown) => {
          logger.warn({ error: messageOf(error) }, 'failed to delete unanswered connections');
        })
        .finally(schedule);
    });
  }

  /** Adapts the share of connections that are sampled to the rate of events. */
  function adaptSampling(): void {
    const ms = clock.now() - countedSince;
    if (ms < RATE_MS) return;
    const rate = (events * 1000) / ms;
    events = 0;
    countedSince = clock.now();
    const next =
      rate > MAX_EVENT_RATE
        ? Math.min(samplingMask * 2 + 1, MAX_SAMPLING_MASK)
        : rate < MAX_EVENT_RATE / 4
          ? samplingMask >> 1
          : samplingMask;
    if (next === samplingMask) return;
    // Answers of connections that are no longer sampled are not seen.
    if (next > samplingMask) pending.clear();
    samplingMask = next;
    // Not the lowest bit: Linux gives connect() even ports first.
    watch.sample(samplingMask << 1);
    logger.debug({ rate, share: 1 / (samplingMask + 1) }, 'changed the sampled share of connections');
  }

  /** Lists the connections that were not sampled, to failing endpoints. */
  function listOthers(failed: readonly Flow[]): void {
    const now = clock.now();
    if (samplingMask === 0 || now - othersListedAt < LIST_OTHERS_MS) return;
    othersListedAt = now;
    const endpoints = new Set(failed.map(({ reply }) => `${reply.source} ${reply.sourcePort}`));
    for (const flow of families.flatMap(unanswered)) {
      const { source, sourcePort } = flow.reply;
      if (endpoints.has(`${source} ${sourcePort}`)) listed.push({ flow, at: now });
    }
  }

  async function look(): Promise<void> {
    const until = clock.now() - UNANSWERED_MS;
    watch.readEvents(MAX_EVENTS);
    adaptSampling();
    const flows = pending.takeUntil(until).flatMap((event) => readFlow(event) ?? []);
    flows.push(...listed.filter(({ at }) => at <= until).map(({ flow }) => flow));
    listed = listed.filter(({ at }) => at > until);
    const late = flows.filter((flow) => wanted(connectionOf(flow)));
    if (late.length === 0) return;
    const still = stillUnanswered(late);
    if (still.length === 0) return;
    const deleted = await connection.delete(still);
    options.onUnanswered?.(deleted);
    if (closed) return;
    for (const flow of still) report('timeout', flow);
    listOthers(still);
  }

  function stillUnanswered(flows: readonly Flow[]): Flow[] {
    if (flows.length <= MAX_LOOKUPS) {
      return flows.filter((flow) => {
        const now = connection.find(flow);
        return now !== null && isUnanswered(now);
      });
    }
    const ids = new Set(families.flatMap(unanswered).map(({ id }) => id));
    return flows.filter(({ id }) => ids.has(id));
  }

  if (readSysctl(EVENTS, netns) === '0') {
    logger.warn(
      { sysctl: EVENTS, hint: 'set it to 1 or 2' },
      'failed connections cannot be detected without connection tracking events',
    );
  }
  list();
  return {
    close() {
      closed = true;
      cancel?.();
      watch.close();
      connection.close();
    },
  };
}

function isUnanswered({ status, tcpState, original, reply }: Flow): boolean {
  return (
    tcpState === SYN_SENT &&
    (status & FLOW_STATUS.seenReply) === 0 &&
    (original.destination !== reply.source || original.destinationPort !== reply.sourcePort)
  );
}

function connectionOf({ original, reply }: Flow): PendingConnection {
  return {
    protocol: 'TCP',
    destination: { ip: original.destination, port: original.destinationPort },
    endpoint: { ip: reply.source, port: reply.sourcePort },
    client: original.source,
  };
}

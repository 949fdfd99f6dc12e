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
import { createSampling } from './event-sampling.ts';
import type { Outcome, PendingConnection } from './outcome.ts';
import type { Patience } from './patience.ts';
import { createPendingTable } from './pending-table.ts';

export interface PendingWatchOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly patience: Pick<Patience, 'of' | 'isMovable' | 'mayBeEarly' | 'knowsServices'>;
  /** Returns true while answers of endpoints matter; otherwise answered connections are not decoded. */
  readonly wantsSuccess: () => boolean;
  readonly onEvent: (event: PendingEvent) => void;
  /** Called with the event of each connection that is watched, and how many it stands for: not decoded, as there are many. */
  readonly onBegun?: (event: Uint8Array, weight: number) => void;
}

export type PendingEvent =
  | { readonly kind: 'outcome'; readonly outcome: Outcome }
  /** A connection that may count as unanswered early has no fast answer. */
  | { readonly kind: 'late'; readonly connection: PendingConnection }
  /** One of the answers, while connections may count as unanswered early. */
  | { readonly kind: 'answer'; readonly connection: PendingConnection; readonly isFast: boolean }
  /** The entries of unanswered connections were deleted. */
  | { readonly kind: 'deleted'; readonly count: number }
  /** The kernel dropped events. */
  | { readonly kind: 'lost' };

/** A connection without an answer. */
interface Waiting {
  readonly flow: Flow;
  readonly dueAt: number;
  /** Whether it was reported as unanswered, and kept because it could not be moved. */
  readonly isReported: boolean;
}

const { agentUnansweredMs: UNANSWERED_MS, fastAnswerMs: FAST_MS } = EJECTION_RULES;
/** Connections are checked together when the oldest is due. */
const GATHER_MS = 10;
const MAX_PENDING = 32_768;
/** Events to read before a decision, so that a received answer counts even if this process is late. */
const MAX_EVENTS = 50_000;
/** Answers are reported at most this often: each takes about 10 µs. */
const ANSWER_MS = 20;
/** From this number of flows on, one listing is cheaper than single lookups. */
const MAX_LOOKUPS = 200;
const EVENTS = 'net.netfilter.nf_conntrack_events';
const TCP = 6;
const SYN_SENT = 1;
/** An overrun requires a listing, at most this often. */
const LIST_AGAIN_MS = 2000;
/** While sampling, the other connections to a failed endpoint are listed at most this often. */
const LIST_OTHERS_MS = 500;
/** Connections that could not be moved are looked at this often: another endpoint may have been added. */
const RECHECK_MS = 2000;

/**
 * Detects through connection tracking events which endpoints answer, refuse or do not answer, and deletes
 * the entries of unanswered connections, so that the client's next SYN becomes a new flow to an endpoint
 * that the rules then choose.
 */
export function startPendingWatch(options: PendingWatchOptions): { close(): void } {
  const { families, netns, clock, logger, patience, wantsSuccess, onEvent } = options;
  const connection = new ConntrackConnection(netns);
  const pending = createPendingTable(MAX_PENDING);
  /** Connections that had no answer when they were first looked at, or were listed, by the id of their entry. */
  const waiting = new Map<number, Waiting>();
  let cancel: (() => void) | null = null;
  /** The time of the next look. */
  let plannedAt = Number.POSITIVE_INFINITY;
  let answerAt = Number.NEGATIVE_INFINITY;
  let closed = false;
  let listedAt = Number.NEGATIVE_INFINITY;
  let othersListedAt = Number.NEGATIVE_INFINITY;
  const sampling = createSampling({
    clock,
    changed(mask, isNarrower, rate) {
      // Answers of connections that are no longer sampled are not seen.
      if (isNarrower) pending.clear();
      // Not the lowest bit: Linux gives connect() even ports first.
      watch.sample(mask << 1);
      logger.debug({ rate, share: 1 / (mask + 1) }, 'changed the sampled share of connections');
    },
  });

  const watch = watchPendingConnections(
    {
      begun(id, event) {
        sampling.count();
        options.onBegun?.(event, sampling.mask + 1);
        pending.begin(id, event, clock.now());
        if (pending.size === 1) schedule();
      },
      answered(id) {
        sampling.count();
        const begun = pending.take(id);
        const isSample = patience.mayBeEarly() && clock.now() - answerAt >= ANSWER_MS;
        if (begun && !isSample && !wantsSuccess()) return;
        const flow = begun ? readFlow(begun.event) : (waiting.get(id)?.flow ?? null);
        waiting.delete(id);
        if (!flow) return;
        // A later answer of a connection that was not looked at yet may have been fast, and only read late.
        if (isSample && (!begun || clock.now() - begun.at <= FAST_MS)) {
          answerAt = clock.now();
          onEvent({ kind: 'answer', connection: connectionOf(flow), isFast: begun !== null });
        }
        if (wantsSuccess()) report('success', flow);
      },
      ended(id) {
        const begun = pending.take(id);
        report('reset', begun ? readFlow(begun.event) : (waiting.get(id)?.flow ?? null));
        waiting.delete(id);
      },
      overrun() {
        pending.clear();
        waiting.clear();
        onEvent({ kind: 'lost' });
        logger.debug({}, 'connection tracking events were lost');
        list();
      },
    },
    netns,
  );

  function report(kind: Outcome['kind'], flow: Flow | null): void {
    if (!flow) return;
    const connection = connectionOf(flow);
    if (patience.of(connection) !== null) onEvent({ kind: 'outcome', outcome: { kind, ...connection } });
  }

  /** Lists pending connections whose events were not seen. */
  function list(): void {
    const now = clock.now();
    if (now - listedAt < LIST_AGAIN_MS || !patience.knowsServices()) return;
    listedAt = now;
    try {
      for (const flow of families.flatMap(unanswered)) wait(flow, now);
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'failed to list pending connections');
    }
    schedule();
  }

  /** Waits for the answer to a connection that began at `at`, or later. */
  function wait(flow: Flow, at: number): void {
    const connection = connectionOf(flow);
    const limit = patience.of(connection);
    if (limit === null) return;
    if (!waiting.has(flow.id)) waiting.set(flow.id, { flow, dueAt: at + limit, isReported: false });
    if (limit < UNANSWERED_MS) onEvent({ kind: 'late', connection });
  }

  function unanswered(family: IPFamily): Flow[] {
    const status = { mask: FLOW_STATUS.seenReply, value: 0 };
    return connection.list(family, { protocol: TCP, status }).filter(isUnanswered);
  }

  /** When pending connections are looked at: where some may count as unanswered early, those without a fast answer. */
  const firstLookMs = () => (patience.mayBeEarly() ? FAST_MS : UNANSWERED_MS);

  function schedule(): void {
    if (closed) return;
    const now = clock.now();
    let due = pending.oldest === null ? Number.POSITIVE_INFINITY : pending.oldest + firstLookMs();
    for (const { dueAt } of waiting.values()) due = Math.min(due, dueAt);
    const at = Math.max(now, due) + GATHER_MS;
    if (at >= plannedAt || due === Number.POSITIVE_INFINITY) return;
    cancel?.();
    plannedAt = at;
    cancel = clock.after(at - now, () => {
      cancel = null;
      plannedAt = Number.POSITIVE_INFINITY;
      void look()
        .catch((error: unknown) => {
          logger.warn({ error: messageOf(error) }, 'failed to delete unanswered connections');
        })
        .finally(schedule);
    });
  }

  /** Lists the connections that were not sampled, to failing endpoints. */
  function listOthers(failed: readonly Flow[]): void {
    const now = clock.now();
    if (sampling.mask === 0 || now - othersListedAt < LIST_OTHERS_MS) return;
    othersListedAt = now;
    const endpoints = new Set(failed.map(({ reply }) => `${reply.source} ${reply.sourcePort}`));
    for (const flow of families.flatMap(unanswered)) {
      const { source, sourcePort } = flow.reply;
      if (endpoints.has(`${source} ${sourcePort}`)) wait(flow, now);
    }
  }

  async function look(): Promise<void> {
    const now = clock.now();
    watch.readEvents(MAX_EVENTS);
    sampling.adapt();
    for (const { event, at } of pending.takeUntil(now - firstLookMs())) {
      const flow = readFlow(event);
      if (flow) wait(flow, at);
    }
    const late = takeDue(now).filter(({ flow }) => patience.of(connectionOf(flow)) !== null);
    if (late.length === 0) return;
    const still = stillUnanswered(late);
    if (still.length === 0) return;
    const movable: Flow[] = [];
    // All together: with many connections, one listing answers for all.
    const again = (Math.floor(now / RECHECK_MS) + 1) * RECHECK_MS;
    for (const { flow } of still) {
      if (patience.isMovable(connectionOf(flow))) movable.push(flow);
      else waiting.set(flow.id, { flow, dueAt: again, isReported: true });
    }
    const deleted = await connection.deleteUnanswered(movable);
    onEvent({ kind: 'deleted', count: deleted.length });
    if (closed) return;
    const answered = new Set(movable);
    for (const flow of deleted) answered.delete(flow);
    for (const { flow, isReported } of still) if (!isReported && !answered.has(flow)) report('timeout', flow);
    listOthers(deleted);
  }

  function takeDue(now: number): Waiting[] {
    const due: Waiting[] = [];
    for (const [id, one] of waiting) {
      if (one.dueAt > now) continue;
      waiting.delete(id);
      due.push(one);
    }
    return due;
  }

  /** Returns those that have no answer yet, with their entries as they are now. */
  function stillUnanswered(late: readonly Waiting[]): Waiting[] {
    const listed =
      late.length <= MAX_LOOKUPS
        ? null
        : new Map(families.flatMap(unanswered).map((flow) => [flow.id, flow]));
    return late.flatMap((one) => {
      const now = listed ? listed.get(one.flow.id) : connection.find(one.flow);
      return now && isUnanswered(now) ? [{ ...one, flow: now }] : [];
    });
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

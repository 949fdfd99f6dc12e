import { watchAttempts } from '../../kernel/conntrack/attempts.ts';
import { ConntrackConnection } from '../../kernel/conntrack/connection.ts';
import { FLOW_STATUS, type Flow, readFlow } from '../../kernel/conntrack/flow.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { readSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import { createAttemptTable } from './attempt-table.ts';
import type { Outcome } from './outcome.ts';

export interface AttemptWatchOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef;
  readonly clock: Clock;
  readonly logger: Logger;
  /** True for connections to a Service that wants failover: they alone are cared for. */
  readonly wanted: (attempt: Attempt) => boolean;
  /** True while answers of endpoints matter; without, what is answered is not even read. */
  readonly wantsSuccess: () => boolean;
  readonly onOutcome: (outcome: Outcome) => void;
  /** So many connections were left unanswered; their clients' next SYN is balanced anew. For metrics. */
  readonly onUnanswered?: (count: number) => void;
  /** The kernel dropped events. For metrics. */
  readonly onOverrun?: () => void;
}

export type Attempt = Omit<Outcome, 'kind'>;

/**
 * How long a SYN may remain without an answer. Between a node and an endpoint of its cluster a round trip takes
 * milliseconds, and a client sends its SYN again after a second: this is well between.
 */
export const UNANSWERED_MS = 300;
/** Attempts end together, so that one look at the clock serves many. */
const GATHER_MS = 10;
const MOST_ATTEMPTS = 32_768;
/** Events read before a verdict, so that an answer that is in already counts, however late this process is. */
const MOST_EVENTS = 50_000;
/** Beyond so many, flows are looked up by one listing. */
const MOST_LOOKUPS = 200;
/**
 * Events that this process reads in a second, at about 10 µs each: beyond it, half of the connections are looked at,
 * a quarter, and so on. An endpoint that fails them fails others as well, which are then listed.
 */
const MOST_PER_SECOND = 5000;
const MOST_THINNED = 0xff;
const RATE_MS = 1000;
const EVENTS = 'net.netfilter.nf_conntrack_events';
const TCP = 6;
const SYN_SENT = 1;
/** An overrun asks for a listing; no more often than that. */
const LIST_AGAIN_MS = 2000;
/** While only some are looked at, what else goes to an endpoint that failed them is listed this often. */
const LIST_OTHERS_MS = 500;

/**
 * Sees by connection tracking which endpoints answer, refuse or stay silent, and deletes the entries of unanswered
 * connections: the client's next SYN is a new flow, and takes the endpoint that the rules give it then.
 */
export function startAttemptWatch(options: AttemptWatchOptions): { close(): void } {
  const { families, netns, clock, logger, wanted, wantsSuccess, onOutcome } = options;
  const connection = new ConntrackConnection(netns);
  const attempts = createAttemptTable(MOST_ATTEMPTS);
  let cancel: (() => void) | null = null;
  let closed = false;
  let listedAt = Number.NEGATIVE_INFINITY;
  let othersListedAt = Number.NEGATIVE_INFINITY;
  let leftOut = 0;
  let events = 0;
  let countedSince = clock.now();

  const watch = watchAttempts(
    {
      begun(id, event) {
        events++;
        attempts.begin(id, event, clock.now());
        schedule();
      },
      answered(id) {
        events++;
        const event = attempts.take(id);
        if (event && wantsSuccess()) tell('success', readFlow(event));
      },
      ended(id) {
        const event = attempts.take(id);
        if (event) tell('reset', readFlow(event));
      },
      overrun() {
        attempts.clear();
        options.onOverrun?.();
        logger.debug({}, 'events of connection tracking were lost');
        list();
      },
    },
    netns,
  );

  function tell(kind: Outcome['kind'], flow: Flow | null): void {
    if (!flow) return;
    const attempt = attemptOf(flow);
    if (wanted(attempt)) onOutcome({ kind, ...attempt });
  }

  /** What is on its way already: what events do not tell. */
  function list(): void {
    const now = clock.now();
    if (now - listedAt < LIST_AGAIN_MS) return;
    listedAt = now;
    try {
      for (const flow of families.flatMap(unanswered)) {
        if (wanted(attemptOf(flow))) listed.push({ flow, at: now });
      }
    } catch (error) {
      logger.warn({ error: messageOf(error) }, 'connections on their way could not be listed');
    }
    schedule();
  }
  /** Flows that were listed, and are to be looked at again. */
  let listed: { readonly flow: Flow; readonly at: number }[] = [];

  function unanswered(family: IPFamily): Flow[] {
    const status = { mask: FLOW_STATUS.seenReply, value: 0 };
    return connection.list(family, { protocol: TCP, status }).filter(isUnanswered);
  }

  function schedule(): void {
    if (cancel || closed) return;
    const oldest = attempts.oldest ?? listed[0]?.at ?? null;
    if (oldest === null) return;
    const wait = Math.max(GATHER_MS, oldest + UNANSWERED_MS + GATHER_MS - clock.now());
    cancel = clock.after(wait, () => {
      cancel = null;
      void look()
        .catch((error: unknown) => {
          logger.warn({ error: messageOf(error) }, 'unanswered connections could not be ended');
        })
        .finally(schedule);
    });
  }

  /** Looks at as many connections as this process has time for. */
  function keepPace(): void {
    const ms = clock.now() - countedSince;
    if (ms < RATE_MS) return;
    const rate = (events * 1000) / ms;
    events = 0;
    countedSince = clock.now();
    const next =
      rate > MOST_PER_SECOND
        ? Math.min(leftOut * 2 + 1, MOST_THINNED)
        : rate < MOST_PER_SECOND / 4
          ? leftOut >> 1
          : leftOut;
    if (next === leftOut) return;
    // Answers of what is left out from now on would not be heard.
    if (next > leftOut) attempts.clear();
    leftOut = next;
    // The lowest bit tells nothing: Linux gives connect() even ports first.
    watch.thin(leftOut << 1);
    logger.debug({ rate, share: 1 / (leftOut + 1) }, 'looking at another share of connections');
  }

  /** Connections that were not looked at, to endpoints that have failed others. */
  function listOthers(failed: readonly Flow[]): void {
    const now = clock.now();
    if (leftOut === 0 || now - othersListedAt < LIST_OTHERS_MS) return;
    othersListedAt = now;
    const endpoints = new Set(failed.map(({ reply }) => `${reply.source} ${reply.sourcePort}`));
    for (const flow of families.flatMap(unanswered)) {
      const { source, sourcePort } = flow.reply;
      if (endpoints.has(`${source} ${sourcePort}`)) listed.push({ flow, at: now });
    }
  }

  async function look(): Promise<void> {
    const until = clock.now() - UNANSWERED_MS;
    watch.readEvents(MOST_EVENTS);
    keepPace();
    const flows = attempts.takeUntil(until).flatMap((event) => readFlow(event) ?? []);
    flows.push(...listed.filter(({ at }) => at <= until).map(({ flow }) => flow));
    listed = listed.filter(({ at }) => at > until);
    const late = flows.filter((flow) => wanted(attemptOf(flow)));
    if (late.length === 0) return;
    const still = stillUnanswered(late);
    if (still.length === 0) return;
    const deleted = await connection.delete(still);
    options.onUnanswered?.(deleted);
    if (closed) return;
    for (const flow of still) tell('timeout', flow);
    listOthers(still);
  }

  function stillUnanswered(flows: readonly Flow[]): Flow[] {
    if (flows.length <= MOST_LOOKUPS) {
      return flows.filter((flow) => {
        const now = connection.find(flow);
        return now !== null && isUnanswered(now);
      });
    }
    const ids = new Set(families.flatMap(unanswered).map(({ id }) => id));
    return flows.filter(({ id }) => ids.has(id));
  }

  if (readSysctl(EVENTS, netns) === '0') {
    logger.warn({ sysctl: EVENTS }, 'connections that fail are not seen: set it to 1 or 2');
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

function attemptOf({ original, reply }: Flow): Attempt {
  return {
    protocol: 'TCP',
    destination: { ip: original.destination, port: original.destinationPort },
    endpoint: { ip: reply.source, port: reply.sourcePort },
    client: original.source,
  };
}

import { type Client, hasReason } from '../kube/client.ts';
import type { Informer } from '../kube/informer.ts';
import {
  ANNOUNCEMENT_LABEL,
  ANNOUNCEMENT_NAMESPACE,
  EARLIER_ANNOUNCEMENT_NAMESPACE,
  leaseDurationMs,
  nodeOfLease,
} from '../kube/load-balancer.ts';
import { isLater } from '../kube/resource-version.ts';
import { type Lease, RESOURCES } from '../kube/types.ts';
import { pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Candidates, WantedAddress } from './candidates.ts';
import { type Announcer, type Speaker, type SpeakerOptions, startSpeaker } from './speaker.ts';

export interface MigratingSpeakerOptions extends Omit<SpeakerOptions, 'namespace' | 'leases' | 'onWrite'> {
  /** Follows the Leases of a namespace that have the label ANNOUNCEMENT_LABEL. */
  readonly follow: (namespace: string, signal: AbortSignal) => Informer<Lease>;
}

/**
 * "both": a node owns an address if it owns it in both namespaces. "closing": this agent may no longer write in the earlier
 * one; sessions there may last. "closed": no agent has a session in the earlier one, and the later one decides alone.
 */
type State = 'both' | 'closing' | 'closed';

/** The longest duration of a session that an agent can be configured with. */
const LONGEST_MS = 60_000;
const RETRY_MS = 1000;
const TWO_NAMESPACES = `owning addresses by Leases in two namespaces: delete the Role ${EARLIER_ANNOUNCEMENT_NAMESPACE}/fairlead when all agents are updated`;

/**
 * Starts a speaker that never owns an address together with an agent of version 0.1, which knows the earlier namespace of
 * the Leases only, in whatever order agents and roles are replaced: docs/decisions/0009-namespace-of-leases.md.
 */
export function startMigratingSpeaker(options: MigratingSpeakerOptions): Speaker {
  const { client, clock, node, logger, signal } = options;
  const later = startSpeaker({
    ...options,
    namespace: ANNOUNCEMENT_NAMESPACE,
    leases: options.follow(ANNOUNCEMENT_NAMESPACE, signal),
  });
  let state: State = 'both';
  let candidates: Candidates | null = null;
  let announcer: Announcer | null = null;
  let earlier: Speaker | null = null;
  let endEarlier = () => {};
  /** The addresses that this node owns in the earlier namespace. */
  const owned = new Set<string>();
  /** Leases that it owned when it lost the right to write: without rights, no agent can take them. */
  const kept = new Set<string>();
  /** Incremented when the state changes. */
  let turn = 0;
  /** The version of the list that showed that no session lasts in the earlier namespace. */
  let closedAt = '';
  let isReported = false;
  let hasEnded = false;
  const decided = Promise.withResolvers<void>();

  /** Lets the later namespace decide about the addresses that this node may own. Several changes are one. */
  const schedule = coalesced(() => {
    if (!candidates || hasEnded) return;
    const mine = state === 'closing' ? kept : owned;
    later.setCandidates(state === 'closed' ? candidates : limitedTo(mine, candidates, node));
  });

  const earlierLeases = options.follow(EARLIER_ANNOUNCEMENT_NAMESPACE, signal);
  const stopFollowing = earlierLeases.handle({ onAdd: sawWrite, onUpdate: sawWrite });
  startEarlier();

  function startEarlier(): void {
    state = 'both';
    turn++;
    const ending = new AbortController();
    const speaker = startSpeaker({
      ...options,
      onStarted: () => {},
      onStopped: () => {},
      namespace: EARLIER_ANNOUNCEMENT_NAMESPACE,
      leases: earlierLeases,
      logger: logger.child({ leases: EARLIER_ANNOUNCEMENT_NAMESPACE }),
      signal: AbortSignal.any([signal, ending.signal]),
      onWrite,
    });
    earlier = speaker;
    endEarlier = () => {
      void speaker.close().finally(() => ending.abort());
      earlier = null;
    };
    speaker.ready.then(
      () => {
        if (state === 'both') decided.resolve();
      },
      // The agent ends.
      () => {},
    );
    if (candidates) speaker.setCandidates(candidates);
    speaker.setAnnouncer(announcer === null ? null : recordOwned);
    schedule();
  }

  const recordOwned: Announcer = {
    announce(address) {
      owned.add(address);
      schedule();
    },
    withdraw(address) {
      owned.delete(address);
      schedule();
    },
  };

  function onWrite(outcome: 'written' | 'refused'): void {
    if (outcome === 'written' && !isReported) {
      isReported = true;
      logger.info({}, TWO_NAMESPACES);
    }
    if (outcome === 'written' && state === 'closing') {
      state = 'both';
      turn++;
      kept.clear();
      decided.resolve();
      schedule();
    } else if (outcome === 'refused' && state === 'both') {
      state = 'closing';
      turn++;
      kept.clear();
      for (const address of owned) if (earlier?.mayAnnounce(address)) kept.add(address);
      schedule();
      void close(turn);
    }
  }

  /** A write in the earlier namespace after this agent lost its rights: others have them. */
  function sawWrite(lease: Lease): void {
    if (state === 'closing') {
      // Until its session's duration is over, no agent can have ended it: the write was earlier, and arrives late.
      const lasts = [...kept].some((address) => earlier?.mayAnnounce(address));
      if (!lasts && kept.size > 0) {
        kept.clear();
        schedule();
      }
    } else if (state === 'closed' && nodeOfLease(lease) !== null && lease.spec?.holderIdentity) {
      if (closedAt !== '' && !isLater(lease.metadata?.resourceVersion ?? '', closedAt)) return;
      logger.warn(
        { session: lease.spec.holderIdentity },
        `an agent announces by Leases in ${EARLIER_ANNOUNCEMENT_NAMESPACE} again`,
      );
      startEarlier();
    }
  }

  /** Waits until no session in the earlier namespace lasts: none was renewed for its whole duration. */
  async function close(mine: number): Promise<void> {
    const isOver = () => turn !== mine || hasEnded || signal.aborted;
    let before: EarlierSessions | null = null;
    while (!isOver()) {
      try {
        const now = await earlierSessions(client, signal);
        if (isOver()) return;
        if (haveEnded(before, now)) {
          state = 'closed';
          closedAt = now.version;
          turn++;
          kept.clear();
          endEarlier();
          logger.info({}, `Leases in ${EARLIER_ANNOUNCEMENT_NAMESPACE} are no longer used`);
          decided.resolve();
          schedule();
          return;
        }
        before = now;
        await pause(clock, longestOf(now), signal);
      } catch (error) {
        if (signal.aborted) return;
        logger.debug({}, `failed to list the earlier Leases: ${messageOf(error)}`);
        await pause(clock, RETRY_MS, signal);
      }
    }
  }

  const ready = Promise.all([later.ready, decided.promise]).then(() => {});
  ready.catch(() => {});
  return {
    ready,
    setCandidates(next) {
      candidates = next;
      earlier?.setCandidates(next);
      schedule();
    },
    setAnnouncer(next) {
      announcer = next;
      later.setAnnouncer(next);
      earlier?.setAnnouncer(next === null ? null : recordOwned);
    },
    mayAnnounce: (address) =>
      later.mayAnnounce(address) &&
      (state === 'closed' || kept.has(address) || earlier?.mayAnnounce(address) === true),
    get announced() {
      return later.announced;
    },
    servicesOf: later.servicesOf,
    async close() {
      hasEnded = true;
      stopFollowing();
      // The next owner in the earlier namespace then finds the address free in the later one.
      await later.close();
      await earlier?.close();
    },
  };
}

/** Returns a function that lets several calls in one turn be one. */
function coalesced(call: () => void): () => void {
  let isScheduled = false;
  return () => {
    if (isScheduled) return;
    isScheduled = true;
    queueMicrotask(() => {
      isScheduled = false;
      call();
    });
  };
}

type EarlierSessions = Awaited<ReturnType<typeof earlierSessions>>;

/** Reports whether no session lasts: there is none, or none was renewed since an earlier list. */
const haveEnded = (before: EarlierSessions | null, { sessions }: EarlierSessions): boolean =>
  sessions.size === 0 ||
  (before !== null &&
    [...sessions].every(([name, { version }]) => before.sessions.get(name)?.version === version));

const longestOf = ({ sessions }: EarlierSessions): number =>
  Math.max(...[...sessions.values()].map(({ durationMs }) => durationMs));

/** Lists the sessions in the earlier namespace. If that is forbidden, one that may last is assumed. */
async function earlierSessions(client: Client, signal: AbortSignal) {
  try {
    const { items, resourceVersion } = await client.list(RESOURCES.leases, {
      namespace: EARLIER_ANNOUNCEMENT_NAMESPACE,
      labelSelector: ANNOUNCEMENT_LABEL,
      signal,
    });
    const sessions = items.flatMap((lease) => {
      const name = nodeOfLease(lease);
      if (name === null || !lease.spec?.holderIdentity) return [];
      const version = lease.metadata?.resourceVersion ?? '';
      return [[name, { version, durationMs: leaseDurationMs(lease) }] as const];
    });
    return { version: resourceVersion, sessions: new Map(sessions) };
  } catch (error) {
    if (!hasReason(error, 'Forbidden')) throw error;
    return { version: '', sessions: new Map([['', { version: '', durationMs: LONGEST_MS }]]) };
  }
}

/** Returns the candidates for the addresses that a node may own: no other node competes for those. */
function limitedTo(mine: ReadonlySet<string>, { wanted, nodes }: Candidates, node: string): Candidates {
  const self = new Set([node]);
  const only = [...wanted].map(([address, { services }]): [string, WantedAddress] => [
    address,
    { services, nodes: mine.has(address) ? self : new Set() },
  ]);
  return { wanted: new Map(only), nodes: nodes.has(node) ? self : new Set() };
}

import { ApiError, type Client, hasReason } from '../kube/client.ts';
import { releasedLease } from '../kube/lease.ts';
import { leaseDurationMs, sessionLeaseMetadata } from '../kube/load-balancer.ts';
import { type Lease, RESOURCES } from '../kube/types.ts';
import { afterRunning, type Clock, pause } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createRenewalPace } from './renewal-pace.ts';

export interface SessionOptions {
  readonly client: Client;
  readonly node: string;
  /** The namespace of the Lease. */
  readonly namespace: string;
  /**
   * The duration of the session without a renewal: while the node owns an address (ownerMs, and longer after renewals
   * were late), and while it owns none.
   */
  readonly ownerMs: number;
  readonly idleMs: number;
  readonly clock: Clock;
  /** Milliseconds of a monotonic clock. */
  readonly steady: () => number;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** A session began or ended. */
  readonly onChange: () => void;
  /** A write succeeded, or was refused because the client has no right to it. */
  readonly onWrite?: (outcome: 'written' | 'refused') => void;
}

/**
 * A Lease that a live node renews. While the session lasts, the node owns its addresses: one write renews
 * any number of them. A session ends when its node ends it, or when another node that has seen no renewal
 * for the whole duration ends it, by a write that fails if there was a renewal in between. By then the node
 * has stopped acting: it stops two thirds of the duration after the request of the last successful renewal.
 * So two nodes never act for one address, even if nodes are suspended or messages delayed.
 */
export interface Session {
  /** "NODE/RANDOM", different for each session; null if there is none. */
  readonly identity: string | null;
  /** Returns false if the last renewal is so old that another node may soon end the session. */
  mayAct(): boolean;
  /** Returns the milliseconds for which `mayAct` has been true without interruption; 0: it is not. */
  actingMs(): number;
  /** Sets whether the node owns addresses: its failure is then detected sooner, at the cost of more writes. */
  setBusy(busy: boolean): void;
  /** Whether the Lease has the duration of a node that owns addresses. */
  readonly isBusy: boolean;
  /** Ends the session: other nodes can take over at once. */
  close(): Promise<void>;
}

/** Fraction of the duration after which a node stops acting. */
const FENCE = 2 / 3;
/** Renewals in one duration. */
const RENEWALS = 5;
const RETRY_MS = 30;
/** Interval between attempts of a client without the right to write: a role is missing, or not known yet. */
const REFUSED_RETRY_MS = 1000;
const CLOSE_MS = 1000;

interface Held {
  readonly identity: string;
  lease: Lease;
  durationMs: number;
  isBusy: boolean;
  /** The monotonic time since which the node may act without interruption. */
  since: number;
  /**
   * The time until which the node may act, by both clocks: the monotonic one may stop while the machine is
   * suspended.
   */
  until: { readonly steady: number; readonly wall: number };
}

/** Returns the earlier of two times by each clock. */
const earlier = (a: Held['until'], b: Held['until']): Held['until'] => ({
  steady: Math.min(a.steady, b.steady),
  wall: Math.min(a.wall, b.wall),
});

/** Sends a request, which fails with ETIMEDOUT after `ms`. */
async function within(
  { clock, signal }: Pick<SessionOptions, 'clock' | 'signal'>,
  ms: number,
  request: (signal: AbortSignal) => Promise<Lease>,
): Promise<Lease> {
  const late = new AbortController();
  const cancel = afterRunning(clock, ms, () =>
    late.abort(
      new FairleadError(`no answer within ${Math.round(ms)} ms`, { op: 'renew Lease', code: 'ETIMEDOUT' }),
    ),
  );
  try {
    return await request(AbortSignal.any([signal, late.signal]));
  } catch (error) {
    throw late.signal.aborted ? late.signal.reason : error;
  } finally {
    cancel();
  }
}

/** Returns the Lease of a session from its current one; null: there is none. */
function sessionLease(
  current: Lease | null,
  identity: string,
  metadata: Lease['metadata'] & object,
  nowMs: number,
  durationMs: number,
): Lease {
  const now = `${new Date(nowMs).toISOString().slice(0, 23)}000Z`;
  const begins = current?.spec?.holderIdentity !== identity;
  return {
    metadata: { ...current?.metadata, ...metadata },
    spec: {
      ...current?.spec,
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(durationMs / 1000),
      renewTime: now,
      ...(begins
        ? { acquireTime: now, leaseTransitions: current ? (current.spec?.leaseTransitions ?? 0) + 1 : 0 }
        : {}),
    },
  };
}

export function startSession(options: SessionOptions): Session {
  const { client, node, namespace, clock, steady, logger, signal } = options;
  const name = sessionLeaseMetadata(node, 1).name;
  let held: Held | null = null;
  let busy = false;
  let closed = false;
  let wake = () => {};
  /** When the next renewal is due, by the monotonic clock. */
  let due = steady();
  /** Another session of this node, as first seen: it may be live until its duration has passed without a renewal. */
  let other: { version: string; since: number } | null = null;

  const pace = createRenewalPace(options.ownerMs, steady);
  const durationMs = () =>
    busy ? Math.min(options.ownerMs * 2 ** pace.doublings(), options.idleMs) : options.idleMs;
  const read = async (): Promise<Lease | null> => {
    try {
      return await within({ clock, signal }, durationMs(), (signal) =>
        client.get(RESOURCES.leases, name, namespace, { signal }),
      );
    } catch (error) {
      if (hasReason(error, 'NotFound')) return null;
      throw error;
    }
  };
  /** Writes the Lease; its duration counts from before the request. */
  const write = async (identity: string, current: Lease | null, timeoutMs: number): Promise<Held> => {
    const asked = { steady: steady(), wall: clock.now() };
    const duration = durationMs();
    const isBusy = busy;
    const lease = sessionLease(
      current,
      identity,
      sessionLeaseMetadata(node, duration, namespace),
      asked.wall,
      duration,
    );
    const left = duration * FENCE;
    const until = { steady: asked.steady + left, wall: asked.wall + left };
    // Others know of a shorter duration from the write on, even if its answer gets lost.
    if (held?.identity === identity && duration < held.durationMs) held.until = earlier(held.until, until);
    const written = await within({ clock, signal }, timeoutMs, (signal) =>
      current
        ? client.update(RESOURCES.leases, lease, { signal })
        : client.create(RESOURCES.leases, lease, { signal }),
    );
    options.onWrite?.('written');
    return { identity, lease: written, durationMs: duration, isBusy, until, since: steady() };
  };
  const lose = (why: string) => {
    if (!held) return;
    logger.warn({ session: held.identity }, `stopped announcing for now: ${why}`);
    held = null;
    options.onChange();
  };

  /** Begins a session. Resolves to null, or to the milliseconds to wait before the next attempt. */
  const begin = async (): Promise<number | null> => {
    const current = await read();
    const holder = current?.spec?.holderIdentity ?? '';
    if (current && holder !== '') {
      const version = current.metadata?.resourceVersion ?? '';
      if (other?.version !== version) other = { version, since: steady() };
      const left = other.since + leaseDurationMs(current) - steady();
      if (left > 0) return left;
    }
    const random = Math.floor(options.random() * 2 ** 48).toString(36);
    const begun = await write(`${node}/${random}`, current, durationMs());
    if (closed) return null;
    held = begun;
    other = null;
    logger.info({ session: held.identity }, 'ready to announce load-balancer addresses');
    options.onChange();
    return null;
  };
  /** Renews the session. False: retry at once, or the session was lost. */
  const renew = async (session: Held): Promise<boolean> => {
    // Sooner than it was due: the duration has to change.
    const expected = Math.min(due, steady());
    const wasBusy = session.isBusy;
    // A node without addresses has time: its first requests, on new connections, say little about later ones.
    const record = () => {
      if (wasBusy) pace.record(steady() - expected);
    };
    const timeoutMs = Math.max(200, durationMs() / 2);
    try {
      const renewed = await write(session.identity, session.lease, timeoutMs);
      record();
      const wasSilent = !mayAct();
      const hasChanged = session.durationMs !== renewed.durationMs || session.isBusy !== renewed.isBusy;
      const since = wasSilent ? renewed.since : session.since;
      Object.assign(session, { ...renewed, since });
      if (wasSilent && mayAct()) {
        logger.warn({ session: session.identity }, 'resumed announcing: the Lease was renewed late');
      }
      if (wasSilent || hasChanged) options.onChange();
      return true;
    } catch (error) {
      if (hasCode(error, 'ETIMEDOUT')) record();
      if (!hasReason(error, 'Conflict', 'NotFound')) throw error;
      const lease = await read();
      // The answer to a renewal was lost, or a user edited the labels.
      if (lease?.spec?.holderIdentity === session.identity) session.lease = lease;
      else if (held === session) lose(`another node ended the session, or the Lease ${name} was changed`);
      return false;
    } finally {
      due = steady();
    }
  };
  const mayAct = () =>
    held !== null && !closed && steady() < held.until.steady && clock.now() < held.until.wall;
  const sleep = async (ms: number) => {
    due = steady() + ms;
    const awake = new AbortController();
    wake = () => awake.abort();
    await pause(clock, ms, AbortSignal.any([signal, awake.signal]));
    wake = () => {};
  };
  const run = async () => {
    while (!signal.aborted && !closed) {
      try {
        if (held) {
          const session: Held = held;
          const started = steady();
          const renewed = await renew(session);
          if (!renewed || session.durationMs !== durationMs() || session.isBusy !== busy) continue;
          await sleep(Math.max(0, started + durationMs() / RENEWALS - steady()));
        } else {
          const wait = await begin();
          await sleep(wait ?? durationMs() / RENEWALS);
        }
      } catch (error) {
        if (signal.aborted || closed) break;
        logger.debug({}, `failed to renew Lease ${name}: ${messageOf(error)}`);
        const isRefused = lacksRight(error);
        if (isRefused) options.onWrite?.('refused');
        await sleep((isRefused ? REFUSED_RETRY_MS : RETRY_MS) * (0.5 + options.random()));
      }
    }
  };
  const running = run();

  return {
    get identity() {
      return held?.identity ?? null;
    },
    mayAct,
    actingMs: () => (held !== null && mayAct() ? steady() - held.since : 0),
    get isBusy() {
      return held?.isBusy === true;
    },
    setBusy(wanted) {
      if (busy === wanted) return;
      busy = wanted;
      wake();
    },
    async close() {
      const session = held;
      closed = true;
      wake();
      // Wait for the renewal in flight: it could arrive after the write that ends the session.
      await Promise.race([running, pause(clock, CLOSE_MS)]);
      if (!session) return;
      try {
        const lease = releasedLease(session.lease);
        await client.update(RESOURCES.leases, lease, { signal: AbortSignal.timeout(CLOSE_MS) });
      } catch (error) {
        logger.debug({}, `failed to release Lease ${name}: ${messageOf(error)}`);
      }
    },
  };
}

/** Returns true for a refusal by the authorizer. Admission, such as a quota, also answers with Forbidden. */
export const lacksRight = (error: unknown) =>
  error instanceof ApiError && hasReason(error, 'Forbidden') && /User "[^"]*" cannot /.test(error.message);

import { type Client, hasReason } from '../kube/client.ts';
import { releasedLease } from '../kube/lease.ts';
import { ANNOUNCEMENT_NAMESPACE, leaseDurationMs, sessionLeaseMetadata } from '../kube/load-balancer.ts';
import { type Lease, RESOURCES } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

export interface SessionOptions {
  readonly client: Client;
  readonly node: string;
  /** How long the session lasts without a renewal while the node owns an address, and while it owns none. */
  readonly ownerMs: number;
  readonly idleMs: number;
  readonly clock: Clock;
  /** Milliseconds of a monotonic clock. */
  readonly steady: () => number;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** A session has begun, or ended. */
  readonly onChange: () => void;
}

/**
 * A node's claim to be alive, kept as a Lease that it renews. While the session lasts, so do the node's claims to
 * addresses; one write then keeps any number of them. It ends in one of two ways: the node ends it, or another node that has
 * seen no renewal for the whole duration does, by a write that fails if there was one in between. Before that can happen,
 * the node has fallen silent by itself: two thirds of the duration after it asked for the last renewal that succeeded.
 * So two nodes never act for one address, whatever is stopped or delayed.
 */
export interface Session {
  /** "NODE/RANDOM", a new one each time; null while there is none. */
  readonly identity: string | null;
  /** False when the last renewal is so old that another node may soon take this one for dead. */
  mayAct(): boolean;
  /** Whether the node owns addresses: others then notice its death sooner, at the price of more writes. */
  setBusy(busy: boolean): void;
  /** Whether the others know that it does. */
  readonly isBusy: boolean;
  /** Ends the session, so that others need not wait. */
  close(): Promise<void>;
}

/** Part of the duration after which a node falls silent. */
const FENCE = 2 / 3;
/** Renewals in one duration. */
const RENEWALS = 5;
const RETRY_MS = 30;
const CLOSE_MS = 1000;

interface Held {
  readonly identity: string;
  lease: Lease;
  durationMs: number;
  /** Until when the node may act, by both clocks: the steady one may stand still while the machine sleeps. */
  until: { readonly steady: number; readonly wall: number };
}

export function startSession(options: SessionOptions): Session {
  const { client, node, clock, steady, logger, signal } = options;
  const name = sessionLeaseMetadata(node, 1).name;
  let held: Held | null = null;
  let busy = false;
  let closed = false;
  let wake = () => {};
  /** Another session of this node, as first seen: it has the whole duration to show that it lives. */
  let other: { version: string; since: number } | null = null;

  const durationMs = () => (busy ? options.ownerMs : options.idleMs);
  const limited = (ms: number) => AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(ms))]);
  const read = async (): Promise<Lease | null> => {
    try {
      return await client.get(RESOURCES.leases, name, ANNOUNCEMENT_NAMESPACE, {
        signal: limited(durationMs()),
      });
    } catch (error) {
      if (hasReason(error, 'NotFound')) return null;
      throw error;
    }
  };
  /** Writes the Lease and counts the time from before it was asked for. */
  const write = async (identity: string, current: Lease | null, timeoutMs: number): Promise<Held> => {
    const asked = { steady: steady(), wall: clock.now() };
    const duration = durationMs();
    const now = `${new Date(asked.wall).toISOString().slice(0, 23)}000Z`;
    const begins = current?.spec?.holderIdentity !== identity;
    const lease: Lease = {
      metadata: { ...current?.metadata, ...sessionLeaseMetadata(node, duration) },
      spec: {
        ...current?.spec,
        holderIdentity: identity,
        leaseDurationSeconds: Math.ceil(duration / 1000),
        renewTime: now,
        ...(begins
          ? { acquireTime: now, leaseTransitions: current ? (current.spec?.leaseTransitions ?? 0) + 1 : 0 }
          : {}),
      },
    };
    const request = { signal: limited(timeoutMs) };
    const written = current
      ? await client.update(RESOURCES.leases, lease, request)
      : await client.create(RESOURCES.leases, lease, request);
    const left = duration * FENCE;
    const until = { steady: asked.steady + left, wall: asked.wall + left };
    return { identity, lease: written, durationMs: duration, until };
  };
  const lose = (why: string) => {
    if (!held) return;
    logger.warn({ session: held.identity }, `this node announces nothing for now: ${why}`);
    held = null;
    options.onChange();
  };

  /** Begins a session; resolves to how long to wait before the next try, or null when it has begun. */
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
  /** True when the session was renewed; otherwise it is to be tried again at once, or is lost. */
  const renew = async (session: Held): Promise<boolean> => {
    const wasSilent = !mayAct();
    try {
      const {
        lease,
        durationMs: duration,
        until,
      } = await write(session.identity, session.lease, Math.max(200, durationMs() / 2));
      const paceChanged = session.durationMs !== duration;
      Object.assign(session, { lease, durationMs: duration, until });
      if (wasSilent && mayAct()) {
        logger.warn({ session: session.identity }, 'this node was silent: its Lease was renewed late');
      }
      if (wasSilent || paceChanged) options.onChange();
      return true;
    } catch (error) {
      if (!hasReason(error, 'Conflict', 'NotFound')) throw error;
      const lease = await read();
      // A renewal whose answer was lost, or labels that were edited.
      if (lease?.spec?.holderIdentity === session.identity) session.lease = lease;
      else if (held === session)
        lose(`its session was ended by another node, or its Lease ${name} was changed`);
      return false;
    }
  };
  const mayAct = () =>
    held !== null && !closed && steady() < held.until.steady && clock.now() < held.until.wall;
  const sleep = async (ms: number) => {
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
          if (!renewed || session.durationMs !== durationMs()) continue;
          await sleep(Math.max(0, started + durationMs() / RENEWALS - steady()));
        } else {
          const wait = await begin();
          await sleep(wait ?? durationMs() / RENEWALS);
        }
      } catch (error) {
        if (signal.aborted || closed) break;
        logger.debug({}, `Lease ${name} not renewed: ${messageOf(error)}`);
        await sleep(RETRY_MS * (0.5 + options.random()));
      }
    }
  };
  const running = run();

  return {
    get identity() {
      return held?.identity ?? null;
    },
    mayAct,
    get isBusy() {
      return held?.durationMs === options.ownerMs;
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
      // What is under way is waited for: it would come after what ends the session.
      await Promise.race([running, pause(clock, CLOSE_MS)]);
      if (!session) return;
      try {
        const lease = releasedLease(session.lease);
        await client.update(RESOURCES.leases, lease, { signal: AbortSignal.timeout(CLOSE_MS) });
      } catch (error) {
        logger.debug({}, `Lease ${name} not given back: ${messageOf(error)}`);
      }
    },
  };
}

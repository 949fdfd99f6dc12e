import { type Client, hasReason } from '../kube/client.ts';
import type { Informer } from '../kube/informer.ts';
import { releasedLease } from '../kube/lease.ts';
import {
  ANNOUNCEMENT_NAMESPACE,
  addressLeaseMetadata,
  addressOfLease,
  nodeOfLease,
  nodeOfSession,
  sessionLeaseMetadata,
} from '../kube/load-balancer.ts';
import { type EndpointSlice, type Lease, type Node, RESOURCES, type Service } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createWorkQueue } from '../lib/work-queue.ts';
import { createApiHealthProbe } from './api-health-probe.ts';
import { mayAnnounce, serviceOfSlice, type WantedAddress, wantedAddresses } from './candidates.ts';
import { byPreference, elect } from './election.ts';
import { startSession } from './session.ts';
import { createSessionTable } from './session-table.ts';

/** What makes the link's hosts send packets here; see link-announcer.ts. */
export interface Announcer {
  announce(address: string): void;
  withdraw(address: string): void;
}

export interface SpeakerOptions {
  readonly client: Client;
  readonly node: string;
  readonly nodes: Informer<Node>;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** Leases with the label of ANNOUNCEMENT_LABEL. */
  readonly leases: Informer<Lease>;
  /** How long the others wait for a node that owns addresses before they take over. */
  readonly leaseDurationMs: number;
  readonly clock: Clock;
  readonly steady: () => number;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** This node announces an address from now on; `before`: the node that did so before, or empty. */
  readonly onTaken?: (address: string, services: readonly string[], before: string) => void;
  readonly onGivenUp?: (address: string, services: readonly string[]) => void;
}

/** One node's part in announcing load-balancer addresses: it takes its share, and never what another has. */
export interface Speaker {
  /** Resolves when this node can take part; rejects when the signal aborts before. */
  readonly ready: Promise<void>;
  /** Where to announce; null while there is no device: the node then gives up what it has. */
  setAnnouncer(announcer: Announcer | null): void;
  /** Whether this node owns an address, and may say so at this very moment. */
  mayAnnounce(address: string): boolean;
  readonly announced: ReadonlySet<string>;
  /** Keys of the Services that have an address. */
  servicesOf(address: string): readonly string[];
  close(): Promise<void>;
}

/** A node that owns nothing renews its Lease so rarely that a large cluster does not mind. */
const IDLE_MS = 9000;
/** How long one waits for each that comes before it in rank. */
const TURN_MS = 100;
/**
 * The same for an address that no node had before: no connection waits for it, so that even a slow node gets its share.
 * First all let a moment pass in which they learn of the same addresses.
 */
const NEW_TURN_MS = 1000;
const NEW_SETTLE_MS = 50;
/** How long after its start a node leaves addresses to nodes that are about to start, too. */
const START_MS = 500;
const READY_MS = 1000;
/** A write that was not answered by then is tried again. */
const WRITE_MS = 2000;
/** The same as TURN_MS for ending a session that was not renewed. */
const END_TURN_MS = 30;
/** So many nodes look into it as soon as a node is missed; the others only when its session has not been ended in time. */
const FIRST_JUDGES = 4;
/** How often the API server is asked while a node is missed. */
const BEAT_MS = 60;

export function startSpeaker(options: SpeakerOptions): Speaker {
  const { client, node, clock, steady, signal, logger, leases } = options;
  const idleMs = Math.max(IDLE_MS, options.leaseDurationMs);
  const sessions = createSessionTable(steady, idleMs);
  const owners = new Map<string, string>();
  const announced = new Set<string>();
  const freeSince = new Map<string, number>();
  /** Who owned the addresses that this node has just taken. */
  const previous = new Map<string, string>();
  let wanted: ReadonlyMap<string, WantedAddress> | null = null;
  let announcer: Announcer | null = null;
  let plan = new Map<string, 'claim' | 'release' | 'remove'>();
  let synced = false;
  let startedAt = 0;
  let closed = false;
  let scheduled = false;
  let cancelTimer = () => {};

  const begun = Promise.withResolvers<void>();

  const session = startSession({
    ...options,
    ownerMs: options.leaseDurationMs,
    idleMs,
    onChange() {
      begun.resolve();
      look();
    },
  });
  let suspect = '';
  const apiHealth = createApiHealthProbe({
    ask: readSuspect,
    steady,
    slowMs: options.leaseDurationMs / 4,
    onResult: look,
  });
  const queue = createWorkQueue({
    process: carryOut,
    clock,
    random: options.random,
    signal,
    onError: (key, error, attempt) =>
      logger[attempt > 3 ? 'warn' : 'debug']({ key }, `load balancer: ${messageOf(error)}`),
  });
  const forgetWanted = () => {
    wanted = null;
    look();
  };
  options.slices.addIndex('service', serviceOfSlice);
  const stops = [
    options.services.handle({ onAdd: forgetWanted, onUpdate: forgetWanted, onDelete: forgetWanted }),
    options.slices.handle({ onAdd: forgetWanted, onUpdate: forgetWanted, onDelete: forgetWanted }),
    options.nodes.handle({ onAdd: look, onUpdate: look, onDelete: look }),
    leases.handle({ onAdd: see, onUpdate: see, onDelete: forget }),
  ];
  const start = async () => {
    await Promise.all([options.services, options.slices, options.nodes, leases].map((one) => one.synced));
    synced = true;
    startedAt = steady();
    look();
    // An earlier session of this node, which a crash left, may last for a while; the node starts all the same.
    await Promise.race([begun.promise, pause(clock, READY_MS, signal)]);
  };
  const ready = start();
  ready.catch(() => {});

  function see(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address !== null) {
      const owner = lease.spec?.holderIdentity ?? '';
      if (owners.get(address) === owner) return;
      owners.set(address, owner);
      look();
      return;
    }
    const before = sessions.lasting();
    sessions.see(lease);
    const after = sessions.lasting();
    // Renewals, several each second, change nothing.
    if (before.size !== after.size || [...after].some(([name, one]) => before.get(name) !== one)) look();
    else if (!lease.spec?.holderIdentity) look();
  }

  function forget(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address !== null) owners.delete(address);
    else sessions.forget(lease);
    look();
  }

  function look(): void {
    if (scheduled || closed) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      if (synced && !closed && !signal.aborted) decide();
    });
  }

  function owns(address: string): boolean {
    return session.identity !== null && owners.get(address) === session.identity;
  }

  function decide(): void {
    wanted ??= wantedAddresses(options.services.list(), (namespace, name) =>
      options.slices.byIndex('service', `${namespace}/${name}`),
    );
    const lasting = sessions.lasting();
    const { identity } = session;
    if (identity === null) lasting.delete(node);
    else lasting.set(node, identity);
    const eligible = new Set<string>();
    for (const name of lasting.keys()) {
      if (mayAnnounce(options.nodes.get(name)) && (name !== node || announcer !== null)) eligible.add(name);
    }
    const result = elect({
      node,
      session: identity,
      sessions: lasting,
      eligible,
      wanted,
      owners,
      isOver: (one) => one !== identity && sessions.isOver(one),
    });
    const now = steady();
    const startsUntil = othersStart(lasting) ? startedAt + START_MS : 0;
    let soonest = Number.POSITIVE_INFINITY;
    const next: typeof plan = new Map();
    for (const address of result.release) next.set(address, 'release');
    for (const address of result.remove) next.set(address, 'remove');
    const free = new Set(result.claim.map(({ address }) => address));
    for (const address of freeSince.keys()) if (!free.has(address)) freeSince.delete(address);
    for (const { address, rank } of result.claim) {
      const since = freeSince.get(address) ?? now;
      freeSince.set(address, since);
      const wait = owners.has(address) ? rank * TURN_MS : NEW_SETTLE_MS + rank * NEW_TURN_MS;
      const left = Math.max(since + wait, startsUntil) - now;
      if (left <= 0) next.set(address, 'claim');
      else soonest = Math.min(soonest, Math.max(1, left));
    }
    plan = next;
    speak(new Set(result.keep));
    session.setBusy(result.keep.length + result.claim.length > 0);
    for (const address of plan.keys()) queue.add(address);
    soonest = Math.min(soonest, judge(lasting));
    cancelTimer();
    if (soonest < Number.POSITIVE_INFINITY) cancelTimer = clock.after(soonest, look);
  }

  /** Announces exactly these. What this node is silent about for a moment stays: `mayAnnounce` holds it back. */
  function speak(keep: ReadonlySet<string>): void {
    for (const address of [...announced]) {
      if (keep.has(address) && announcer) continue;
      announced.delete(address);
      announcer?.withdraw(address);
      logger.info({ address }, 'announces no longer');
      options.onGivenUp?.(address, servicesOf(address));
    }
    if (!announcer) return;
    for (const address of keep) {
      if (announced.has(address)) continue;
      announced.add(address);
      announcer.announce(address);
      logger.info({ address }, 'announces');
      options.onTaken?.(address, servicesOf(address), previous.get(address) ?? '');
      previous.delete(address);
    }
  }

  /** Does what was last decided about an address, if that still stands. */
  async function carryOut(key: string): Promise<void> {
    if (key.startsWith(END)) return endSession(key.slice(END.length));
    const what = plan.get(key);
    const identity = session.identity;
    if (what === undefined || identity === null || closed) return;
    const metadata = addressLeaseMetadata(key);
    const current = leases.get(`${metadata.namespace}/${metadata.name}`);
    if (what === 'release' && announced.has(key)) return;
    if (what === 'remove' || (what === 'release' && !wanted?.has(key))) {
      if (current) await remove(current);
    } else if (what === 'release') {
      if (current) leases.record(await client.update(RESOURCES.leases, releasedLease(current), limited()));
    } else {
      // The others must know how soon to miss this node, before it matters.
      if (!session.mayAct() || !session.isBusy) return;
      const before = nodeOfSession(current?.spec?.holderIdentity ?? '');
      const written = await writeOwner(current ?? { metadata }, identity);
      if (before !== node) previous.set(key, before);
      leases.record(written);
    }
    if (plan.get(key) === what) plan.delete(key);
    look();
  }

  /** Whether nodes that may announce have no session yet: just after a start, they get a moment for their share. */
  function othersStart(lasting: ReadonlyMap<string, string>): boolean {
    return options.nodes.list().some((one) => mayAnnounce(one) && !lasting.has(one.metadata?.name ?? ''));
  }

  function limited(): { signal: AbortSignal } {
    return { signal: AbortSignal.any([signal, AbortSignal.timeout(WRITE_MS)]) };
  }

  function writeOwner(lease: Lease, owner: string): Promise<Lease> {
    const now = `${new Date(clock.now()).toISOString().slice(0, 23)}000Z`;
    const spec = {
      ...lease.spec,
      holderIdentity: owner,
      acquireTime: now,
      renewTime: now,
      leaseTransitions: (lease.spec?.leaseTransitions ?? -1) + 1,
    };
    if (lease.metadata?.resourceVersion === undefined)
      return client.create(RESOURCES.leases, { ...lease, spec }, limited());
    return client.update(RESOURCES.leases, { ...lease, spec }, limited());
  }

  async function remove(lease: Lease): Promise<void> {
    const { name = '', resourceVersion = '', uid = '' } = lease.metadata ?? {};
    const namespace = ANNOUNCEMENT_NAMESPACE;
    try {
      await client.delete(RESOURCES.leases, name, { namespace, resourceVersion, uid, ...limited() });
    } catch (error) {
      if (!hasReason(error, 'NotFound')) throw error;
    }
  }

  /**
   * Looks for sessions that were not renewed, and has them ended. Who cannot reach the API server cannot renew: so they
   * count as silent only where the server has answered this node all the while. Otherwise a server that pauses would
   * have every address move. Returns when to look again, in milliseconds.
   */
  function judge(lasting: ReadonlyMap<string, string>): number {
    let soonest = Number.POSITIVE_INFINITY;
    for (const { node: name, ageMs, durationMs } of sessions.ages()) {
      if (name === node) continue;
      if (ageMs < durationMs / 2) {
        soonest = Math.min(soonest, durationMs / 2 - ageMs);
        continue;
      }
      const rank = byPreference([...lasting.keys()], name).indexOf(node);
      if (rank < 0) continue;
      const turn = rank * END_TURN_MS;
      const suspectMs = rank < FIRST_JUDGES ? durationMs / 2 : durationMs + turn;
      if (ageMs < suspectMs) {
        soonest = Math.min(soonest, suspectMs - ageMs);
        continue;
      }
      suspect = name;
      apiHealth.probe();
      const isHealthy = apiHealth.healthyMs() >= Math.min(durationMs, options.leaseDurationMs) / 4;
      if (ageMs >= durationMs + turn && isHealthy && session.mayAct()) queue.add(END + name);
      // A little later than to the millisecond, so that the deadline has passed when the timer rings.
      soonest = Math.min(soonest, BEAT_MS, Math.max(END_TURN_MS, durationMs + turn - ageMs + 2));
    }
    return soonest;
  }

  /** Reads the Lease of the node that is missed most: the watch may lag behind. */
  async function readSuspect(): Promise<void> {
    const name = sessionLeaseMetadata(suspect, 1).name;
    try {
      const lease = await client.get(RESOURCES.leases, name, ANNOUNCEMENT_NAMESPACE, limited());
      const known = leases.get(`${ANNOUNCEMENT_NAMESPACE}/${name}`);
      if (lease.metadata?.resourceVersion !== known?.metadata?.resourceVersion) leases.record(lease);
    } catch (error) {
      if (!hasReason(error, 'NotFound')) throw error;
    }
  }

  /** Ends the session of a node that did not renew it; the write fails if it did so in the meantime. */
  async function endSession(name: string): Promise<void> {
    const lease = sessions.expired(() => 0).find((one) => nodeOfLease(one) === name);
    if (!lease || closed || lease.spec?.holderIdentity === session.identity) return;
    try {
      const ended = releasedLease(lease);
      const written = await client.update(RESOURCES.leases, ended, limited());
      logger.warn({ session: lease.spec?.holderIdentity }, 'a node fell silent: its addresses are free');
      leases.record(written);
    } catch (error) {
      if (!hasReason(error, 'Conflict', 'NotFound')) throw error;
    }
  }

  function servicesOf(address: string): readonly string[] {
    return wanted?.get(address)?.services ?? [];
  }

  return {
    ready,
    setAnnouncer(next) {
      if (next === announcer) return;
      for (const address of announced) announcer?.withdraw(address);
      announcer = next;
      for (const address of announced) announcer?.announce(address);
      look();
    },
    mayAnnounce: (address) => owns(address) && session.mayAct(),
    get announced() {
      return announced;
    },
    servicesOf,
    async close() {
      closed = true;
      cancelTimer();
      for (const stop of stops) stop();
      for (const address of announced) announcer?.withdraw(address);
      announced.clear();
      await session.close();
    },
  };
}

/** Prefix of the queue's keys that name nodes whose sessions are to be ended; the others are addresses. */
const END = 'end ';

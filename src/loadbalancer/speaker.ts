import { type Client, hasReason } from '../kube/client.ts';
import type { Informer } from '../kube/informer.ts';
import { releasedLease } from '../kube/lease.ts';
import {
  addressLeaseMetadata,
  addressOfLease,
  nodeOfLease,
  nodeOfSession,
  sessionLeaseMetadata,
} from '../kube/load-balancer.ts';
import { type Lease, RESOURCES } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createWorkQueue } from '../lib/work-queue.ts';
import { createApiHealthProbe } from './api-health-probe.ts';
import type { Candidates } from './candidates.ts';
import { byPreference, elect } from './election.ts';
import { lacksRight, startSession } from './session.ts';
import { createSessionTable } from './session-table.ts';

/** Makes the hosts of a link send packets for an address to this node; see link-announcer.ts. */
export interface Announcer {
  announce(address: string): void;
  withdraw(address: string): void;
}

export interface SpeakerOptions {
  readonly client: Client;
  readonly node: string;
  /** The namespace of the Leases. */
  readonly namespace: string;
  /** Its Leases with the label of ANNOUNCEMENT_LABEL. */
  readonly leases: Informer<Lease>;
  /** How long other nodes wait for a silent node before they take over its addresses. */
  readonly leaseDurationMs: number;
  readonly clock: Clock;
  readonly steady: () => number;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  /** This node started announcing an address; `before`: the node that announced it until now, or empty. */
  readonly onStarted?: (address: string, services: readonly string[], before: string) => void;
  /** This node stopped announcing an address. */
  readonly onStopped?: (address: string, services: readonly string[]) => void;
  /** See SessionOptions. */
  readonly onWrite?: (outcome: 'written' | 'refused') => void;
}

/** One node's share of announcing load-balancer addresses. It never announces an address that another node owns. */
export interface Speaker {
  /** Resolves when this node can own addresses; rejects when the signal aborts first. */
  readonly ready: Promise<void>;
  /** Sets the addresses to announce and the nodes that may announce them: nothing happens before the first call. */
  setCandidates(candidates: Candidates): void;
  /** Sets the announcer; null while there is no device: the node then releases its addresses. */
  setAnnouncer(announcer: Announcer | null): void;
  /** Returns true if this node owns an address and may answer for it at this moment. */
  mayAnnounce(address: string): boolean;
  readonly announced: ReadonlySet<string>;
  /** Returns the keys of the Services that have an address. */
  servicesOf(address: string): readonly string[];
  close(): Promise<void>;
}

/** A node that owns no address renews its Lease rarely, to spare the API server of a large cluster. */
const IDLE_MS = 9000;
/** Time that a node waits for each node of a better rank before it claims a free address. */
const RANK_DELAY_MS = 100;
/**
 * The same for an address that no node has owned yet: no connection waits for it, so a slow node can get
 * its share. NEW_DELAY_MS lets all nodes learn of the same addresses first.
 */
const NEW_RANK_DELAY_MS = 1000;
const NEW_DELAY_MS = 50;
/**
 * For this long after its start a node claims nothing while other nodes are still starting; an address that no node has owned
 * yet for longer, since all nodes start with the first Service that wants one.
 */
const STARTUP_MS = 500;
const NEW_STARTUP_MS = 2000;
const READY_MS = 1000;
/** A write without an answer is retried after this time. */
const WRITE_MS = 2000;
/** The longest delay between attempts of a write that fails. */
const RETRY_MS = 1000;
/** The same as RANK_DELAY_MS, for ending a session that was not renewed. */
const END_RANK_DELAY_MS = 30;
/** The nodes of the best ranks probe a silent node's Lease early; the others only when its session has expired. */
const FIRST_OBSERVERS = 4;
/** How often the API server is probed while a node is silent. */
const PROBE_MS = 60;

export function startSpeaker(options: SpeakerOptions): Speaker {
  const { client, node, namespace, clock, steady, signal, logger, leases } = options;
  const idleMs = Math.max(IDLE_MS, options.leaseDurationMs);
  const sessions = createSessionTable(steady, idleMs);
  const owners = new Map<string, string>();
  const announced = new Set<string>();
  const freeSince = new Map<string, number>();
  /** The previous owners of addresses that this node has just claimed. */
  const previous = new Map<string, string>();
  let candidates: Candidates | null = null;
  let announcer: Announcer | null = null;
  let plan = new Map<string, 'claim' | 'release' | 'remove'>();
  let hasSynced = false;
  let startedAt = 0;
  let closed = false;
  let scheduled = false;
  let cancelTimer = () => {};

  const started = Promise.withResolvers<void>();
  const informed = Promise.withResolvers<void>();

  const session = startSession({
    ...options,
    ownerMs: options.leaseDurationMs,
    idleMs,
    onChange() {
      started.resolve();
      scheduleEvaluation();
    },
  });
  /** The silent node whose Lease is read, and the duration of its session. */
  let suspect = { name: '', durationMs: options.leaseDurationMs };
  const apiHealth = createApiHealthProbe({
    ask: readSuspect,
    steady,
    slowMs: () => suspect.durationMs / 4,
    onResult: scheduleEvaluation,
  });
  /** Keys whose last write failed: the queue repeats it with growing delays, evaluations do not. */
  const failing = new Set<string>();
  const queue = createWorkQueue({
    process: async (key) => {
      await applyPlan(key);
      failing.delete(key);
    },
    clock,
    random: options.random,
    signal,
    maxBackoffMs: RETRY_MS,
    onError(key, error, attempt) {
      // What was decided by an outdated Lease is decided again as soon as the watch has the next one.
      if (!hasReason(error, 'Conflict', 'AlreadyExists', 'NotFound')) failing.add(key);
      // Where rights may end, the owner of `onWrite` reports it.
      const isExpected = lacksRight(error) && options.onWrite !== undefined;
      logger[attempt > 3 && !isExpected ? 'warn' : 'debug']({ key }, `load balancer: ${messageOf(error)}`);
    },
  });
  const addToQueue = (key: string) => {
    if (!failing.has(key)) queue.add(key);
  };
  const stopFollowing = leases.handle({ onAdd: setLease, onUpdate: setLease, onDelete: deleteLease });
  const start = async () => {
    await Promise.all([leases.synced, informed.promise]);
    hasSynced = true;
    startedAt = steady();
    scheduleEvaluation();
    // A session left by a crashed process of this node may last for a while: do not wait for it.
    await Promise.race([started.promise, pause(clock, READY_MS, signal)]);
  };
  const ready = start();
  ready.catch(() => {});

  function setLease(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address !== null) {
      const owner = lease.spec?.holderIdentity ?? '';
      if (owners.get(address) === owner) return;
      owners.set(address, owner);
      scheduleEvaluation();
      return;
    }
    const before = sessions.lasting();
    sessions.see(lease);
    const after = sessions.lasting();
    // Renewals, of which there are several a second, do not change the sessions.
    if (before.size !== after.size || [...after].some(([name, one]) => before.get(name) !== one))
      scheduleEvaluation();
    else if (!lease.spec?.holderIdentity) scheduleEvaluation();
  }

  function deleteLease(lease: Lease): void {
    const address = addressOfLease(lease);
    if (address !== null) owners.delete(address);
    else sessions.forget(lease);
    scheduleEvaluation();
  }

  function scheduleEvaluation(): void {
    if (scheduled || closed) return;
    scheduled = true;
    setImmediate(() => {
      scheduled = false;
      if (hasSynced && candidates && !closed && !signal.aborted) evaluate(candidates);
    });
  }

  function owns(address: string): boolean {
    return session.identity !== null && owners.get(address) === session.identity;
  }

  function evaluate({ wanted, nodes }: Candidates): void {
    const lasting = sessions.lasting();
    const { identity } = session;
    if (identity === null) lasting.delete(node);
    else lasting.set(node, identity);
    const eligible = new Set<string>();
    for (const name of lasting.keys()) {
      if (nodes.has(name) && (name !== node || announcer !== null)) eligible.add(name);
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
    const areOthersStarting = [...nodes].some((name) => !lasting.has(name));
    let soonest = Number.POSITIVE_INFINITY;
    const next: typeof plan = new Map();
    for (const address of result.release) next.set(address, 'release');
    for (const address of result.remove) next.set(address, 'remove');
    const free = new Set(result.claim.map(({ address }) => address));
    for (const address of freeSince.keys()) if (!free.has(address)) freeSince.delete(address);
    for (const { address, rank } of result.claim) {
      const since = freeSince.get(address) ?? now;
      freeSince.set(address, since);
      const [wait, startup] = owners.has(address)
        ? [rank * RANK_DELAY_MS, STARTUP_MS]
        : [NEW_DELAY_MS + rank * NEW_RANK_DELAY_MS, NEW_STARTUP_MS];
      const left = Math.max(since + wait, areOthersStarting ? startedAt + startup : 0) - now;
      if (left <= 0) next.set(address, 'claim');
      else soonest = Math.min(soonest, Math.max(1, left));
    }
    plan = next;
    announceExactly(new Set(result.keep));
    session.setBusy(result.keep.length + result.claim.length > 0);
    for (const address of plan.keys()) addToQueue(address);
    soonest = Math.min(soonest, findSilentNodes(lasting));
    cancelTimer();
    if (soonest < Number.POSITIVE_INFINITY) cancelTimer = clock.after(soonest, scheduleEvaluation);
  }

  /** Announces exactly these addresses. A node that is briefly not allowed to act keeps its own: see `mayAnnounce`. */
  function announceExactly(keep: ReadonlySet<string>): void {
    for (const address of [...announced]) {
      if (keep.has(address) && announcer) continue;
      announced.delete(address);
      announcer?.withdraw(address);
      logger.info({ address }, 'stopped announcing');
      options.onStopped?.(address, servicesOf(address));
    }
    if (!announcer) return;
    for (const address of keep) {
      if (announced.has(address)) continue;
      announced.add(address);
      announcer.announce(address);
      logger.info({ address }, 'started announcing');
      options.onStarted?.(address, servicesOf(address), previous.get(address) ?? '');
      previous.delete(address);
    }
  }

  /** Applies the latest decision about an address, unless it is outdated. */
  async function applyPlan(key: string): Promise<void> {
    if (key.startsWith(END)) return endSession(key.slice(END.length));
    const what = plan.get(key);
    const identity = session.identity;
    if (what === undefined || identity === null || closed) return;
    const metadata = addressLeaseMetadata(key, namespace);
    const current = leases.get(`${metadata.namespace}/${metadata.name}`);
    if (what === 'release' && announced.has(key)) return;
    // The watch may have reported another owner since the decision: the write would succeed, and take its address.
    const owner = current?.spec?.holderIdentity ?? '';
    if (owner !== '' && owner !== identity && !sessions.isOver(owner)) return;
    if (what === 'remove' || (what === 'release' && !candidates?.wanted.has(key))) {
      if (current) await remove(current);
    } else if (what === 'release') {
      if (current) leases.record(await client.update(RESOURCES.leases, releasedLease(current), limited()));
    } else {
      // The other nodes have to know this node's short lease duration before it owns an address.
      if (!session.mayAct() || !session.isBusy) return;
      const before = nodeOfSession(current?.spec?.holderIdentity ?? '');
      const written = await writeOwner(current ?? { metadata }, identity);
      if (before !== node) previous.set(key, before);
      leases.record(written);
    }
    if (plan.get(key) === what) plan.delete(key);
    scheduleEvaluation();
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
    try {
      await client.delete(RESOURCES.leases, name, { namespace, resourceVersion, uid, ...limited() });
    } catch (error) {
      if (!hasReason(error, 'NotFound')) throw error;
    }
  }

  /**
   * Finds sessions that were not renewed and ends them. A node that cannot reach the API server cannot renew its session.
   * A session therefore counts as expired only if the API server answered this node for the whole time: otherwise an API
   * server that pauses would make every address move. A node that was late itself first gives the others, which may have
   * been so too, a quarter of the duration to renew. Returns the milliseconds until the next evaluation.
   */
  function findSilentNodes(lasting: ReadonlyMap<string, string>): number {
    let soonest = Number.POSITIVE_INFINITY;
    for (const { node: name, ageMs, durationMs } of sessions.ages()) {
      if (name === node) continue;
      if (ageMs < durationMs / 2) {
        soonest = Math.min(soonest, durationMs / 2 - ageMs);
        continue;
      }
      const rank = byPreference([...lasting.keys()], name).indexOf(node);
      if (rank < 0) continue;
      const turn = rank * END_RANK_DELAY_MS;
      const suspectMs = rank < FIRST_OBSERVERS ? durationMs / 2 : durationMs + turn;
      if (ageMs < suspectMs) {
        soonest = Math.min(soonest, suspectMs - ageMs);
        continue;
      }
      suspect = { name, durationMs };
      apiHealth.probe();
      const isHealthy = Math.min(apiHealth.healthyMs(), session.actingMs()) >= durationMs / 4;
      if (ageMs >= durationMs + turn && isHealthy) addToQueue(END + name);
      // 2 ms more, so that the deadline has passed when the timer fires.
      soonest = Math.min(soonest, PROBE_MS, Math.max(END_RANK_DELAY_MS, durationMs + turn - ageMs + 2));
    }
    return soonest;
  }

  /** Reads the Lease of the silent node, since the watch may lag behind. */
  async function readSuspect(): Promise<void> {
    const name = sessionLeaseMetadata(suspect.name, 1).name;
    try {
      const lease = await client.get(RESOURCES.leases, name, namespace, limited());
      const known = leases.get(`${namespace}/${name}`);
      if (lease.metadata?.resourceVersion !== known?.metadata?.resourceVersion) leases.record(lease);
    } catch (error) {
      if (!hasReason(error, 'NotFound')) throw error;
    }
  }

  /**
   * Ends the session of a node that did not renew it; the write fails if the node renewed it in the
   * meantime.
   */
  async function endSession(name: string): Promise<void> {
    const lease = sessions.expired(() => 0).find((one) => nodeOfLease(one) === name);
    if (!lease || closed || lease.spec?.holderIdentity === session.identity) return;
    try {
      const ended = releasedLease(lease);
      const written = await client.update(RESOURCES.leases, ended, limited());
      logger.warn(
        { session: lease.spec?.holderIdentity },
        'ended the session of a silent node: its addresses are free',
      );
      leases.record(written);
    } catch (error) {
      if (!hasReason(error, 'Conflict', 'NotFound')) throw error;
    }
  }

  function servicesOf(address: string): readonly string[] {
    return candidates?.wanted.get(address)?.services ?? [];
  }

  return {
    ready,
    setCandidates(next) {
      candidates = next;
      informed.resolve();
      scheduleEvaluation();
    },
    setAnnouncer(next) {
      if (next === announcer) return;
      for (const address of announced) announcer?.withdraw(address);
      announcer = next;
      for (const address of announced) announcer?.announce(address);
      scheduleEvaluation();
    },
    mayAnnounce: (address) => owns(address) && session.mayAct(),
    get announced() {
      return announced;
    },
    servicesOf,
    async close() {
      closed = true;
      cancelTimer();
      stopFollowing();
      for (const address of announced) announcer?.withdraw(address);
      announced.clear();
      await session.close();
    },
  };
}

/** Prefix of the queue keys that name nodes whose sessions have to be ended; other keys are addresses. */
const END = 'end ';

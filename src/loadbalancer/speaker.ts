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
import { lacksRight, type Session, startSession } from './session.ts';
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

/** The state of a node's speaker. */
interface SpeakerState extends SpeakerOptions {
  readonly sessions: ReturnType<typeof createSessionTable>;
  /** The sessions that own addresses, by address. */
  readonly owners: Map<string, string>;
  readonly announced: Set<string>;
  readonly freeSince: Map<string, number>;
  /** The previous owners of addresses that this node has just claimed. */
  readonly previous: Map<string, string>;
  readonly session: Session;
  readonly apiHealth: ReturnType<typeof createApiHealthProbe>;
  readonly addToQueue: (key: string) => void;
  candidates: Candidates | null;
  announcer: Announcer | null;
  plan: Map<string, 'claim' | 'release' | 'remove'>;
  hasSynced: boolean;
  startedAt: number;
  closed: boolean;
  scheduled: boolean;
  cancelTimer: () => void;
  /** The silent node whose Lease is read, and the duration of its session. */
  suspect: { name: string; durationMs: number };
}

export function startSpeaker(options: SpeakerOptions): Speaker {
  const { clock, steady, signal, leases } = options;
  const idleMs = Math.max(IDLE_MS, options.leaseDurationMs);
  const started = Promise.withResolvers<void>();
  const informed = Promise.withResolvers<void>();
  const evaluateLater = () => scheduleEvaluation(speaker);
  const speaker: SpeakerState = {
    ...options,
    sessions: createSessionTable(steady, idleMs),
    owners: new Map(),
    announced: new Set(),
    freeSince: new Map(),
    previous: new Map(),
    candidates: null,
    announcer: null,
    plan: new Map(),
    hasSynced: false,
    startedAt: 0,
    closed: false,
    scheduled: false,
    cancelTimer: () => {},
    session: startSession({
      ...options,
      ownerMs: options.leaseDurationMs,
      idleMs,
      onChange() {
        started.resolve();
        evaluateLater();
      },
    }),
    suspect: { name: '', durationMs: options.leaseDurationMs },
    apiHealth: createApiHealthProbe({
      ask: () => readSuspect(speaker),
      steady,
      slowMs: () => speaker.suspect.durationMs / 4,
      onResult: evaluateLater,
    }),
    addToQueue: createPlanQueue(options, (key) => applyPlan(speaker, key)),
  };
  const set = (lease: Lease) => setLease(speaker, lease);
  const stopFollowing = leases.handle({
    onAdd: set,
    onUpdate: set,
    onDelete: (lease) => deleteLease(speaker, lease),
  });
  const start = async () => {
    await Promise.all([leases.synced, informed.promise]);
    speaker.hasSynced = true;
    speaker.startedAt = steady();
    evaluateLater();
    // A session left by a crashed process of this node may last for a while: do not wait for it.
    await Promise.race([started.promise, pause(clock, READY_MS, signal)]);
  };
  const ready = start();
  ready.catch(() => {});

  return {
    ready,
    setCandidates(next) {
      speaker.candidates = next;
      informed.resolve();
      scheduleEvaluation(speaker);
    },
    setAnnouncer(next) {
      if (next === speaker.announcer) return;
      for (const address of speaker.announced) speaker.announcer?.withdraw(address);
      speaker.announcer = next;
      for (const address of speaker.announced) speaker.announcer?.announce(address);
      scheduleEvaluation(speaker);
    },
    mayAnnounce: (address) => owns(speaker, address) && speaker.session.mayAct(),
    announced: speaker.announced,
    servicesOf: (address) => servicesOf(speaker, address),
    async close() {
      speaker.closed = true;
      speaker.cancelTimer();
      stopFollowing();
      for (const address of speaker.announced) speaker.announcer?.withdraw(address);
      speaker.announced.clear();
      await speaker.session.close();
    },
  };
}

/** Creates the queue of addresses to claim or release, and of sessions to end. Returns what adds a key to it. */
function createPlanQueue(
  { clock, random, signal, logger, onWrite }: SpeakerOptions,
  apply: (key: string) => Promise<void>,
): (key: string) => void {
  /** Keys whose last write failed: the queue repeats it with growing delays, evaluations do not. */
  const failing = new Set<string>();
  const queue = createWorkQueue({
    process: async (key) => {
      await apply(key);
      failing.delete(key);
    },
    clock,
    random,
    signal,
    maxBackoffMs: RETRY_MS,
    onError(key, error, attempt) {
      // Decisions by an outdated Lease are made again as soon as the watch has the next one.
      if (!hasReason(error, 'Conflict', 'AlreadyExists', 'NotFound')) failing.add(key);
      // Where rights may end, the owner of `onWrite` reports it.
      const isExpected = lacksRight(error) && onWrite !== undefined;
      logger[attempt > 3 && !isExpected ? 'warn' : 'debug']({ key }, `load balancer: ${messageOf(error)}`);
    },
  });
  return (key) => {
    if (!failing.has(key)) queue.add(key);
  };
}

function setLease(speaker: SpeakerState, lease: Lease): void {
  const address = addressOfLease(lease);
  if (address !== null) {
    const owner = lease.spec?.holderIdentity ?? '';
    if (speaker.owners.get(address) === owner) return;
    speaker.owners.set(address, owner);
    scheduleEvaluation(speaker);
    return;
  }
  const before = speaker.sessions.lasting();
  speaker.sessions.see(lease);
  const after = speaker.sessions.lasting();
  // Renewals, of which there are several a second, do not change the sessions.
  if (before.size !== after.size || [...after].some(([name, one]) => before.get(name) !== one))
    scheduleEvaluation(speaker);
  else if (!lease.spec?.holderIdentity) scheduleEvaluation(speaker);
}

function deleteLease(speaker: SpeakerState, lease: Lease): void {
  const address = addressOfLease(lease);
  if (address !== null) speaker.owners.delete(address);
  else speaker.sessions.forget(lease);
  scheduleEvaluation(speaker);
}

function scheduleEvaluation(speaker: SpeakerState): void {
  if (speaker.scheduled || speaker.closed) return;
  speaker.scheduled = true;
  setImmediate(() => {
    speaker.scheduled = false;
    if (speaker.hasSynced && speaker.candidates && !speaker.closed && !speaker.signal.aborted)
      evaluate(speaker, speaker.candidates);
  });
}

function owns(speaker: SpeakerState, address: string): boolean {
  return speaker.session.identity !== null && speaker.owners.get(address) === speaker.session.identity;
}

function evaluate(speaker: SpeakerState, { wanted, nodes }: Candidates): void {
  const lasting = speaker.sessions.lasting();
  const { identity } = speaker.session;
  if (identity === null) lasting.delete(speaker.node);
  else lasting.set(speaker.node, identity);
  const eligible = new Set<string>();
  for (const name of lasting.keys()) {
    if (nodes.has(name) && (name !== speaker.node || speaker.announcer !== null)) eligible.add(name);
  }
  const result = elect({
    node: speaker.node,
    session: identity,
    sessions: lasting,
    eligible,
    wanted,
    owners: speaker.owners,
    isOver: (one) => one !== identity && speaker.sessions.isOver(one),
  });
  const now = speaker.steady();
  const areOthersStarting = [...nodes].some((name) => !lasting.has(name));
  let soonest = Number.POSITIVE_INFINITY;
  const next: typeof speaker.plan = new Map();
  for (const address of result.release) next.set(address, 'release');
  for (const address of result.remove) next.set(address, 'remove');
  const free = new Set(result.claim.map(({ address }) => address));
  for (const address of speaker.freeSince.keys()) if (!free.has(address)) speaker.freeSince.delete(address);
  for (const { address, rank } of result.claim) {
    const since = speaker.freeSince.get(address) ?? now;
    speaker.freeSince.set(address, since);
    const [wait, startup] = speaker.owners.has(address)
      ? [rank * RANK_DELAY_MS, STARTUP_MS]
      : [NEW_DELAY_MS + rank * NEW_RANK_DELAY_MS, NEW_STARTUP_MS];
    const left = Math.max(since + wait, areOthersStarting ? speaker.startedAt + startup : 0) - now;
    if (left <= 0) next.set(address, 'claim');
    else soonest = Math.min(soonest, Math.max(1, left));
  }
  speaker.plan = next;
  announceExactly(speaker, new Set(result.keep));
  speaker.session.setBusy(result.keep.length + result.claim.length > 0);
  for (const address of speaker.plan.keys()) speaker.addToQueue(address);
  soonest = Math.min(soonest, findSilentNodes(speaker, lasting));
  speaker.cancelTimer();
  if (soonest < Number.POSITIVE_INFINITY)
    speaker.cancelTimer = speaker.clock.after(soonest, () => scheduleEvaluation(speaker));
}

/** Announces exactly these addresses. A node that is briefly not allowed to act keeps its own: see `mayAnnounce`. */
function announceExactly(speaker: SpeakerState, keep: ReadonlySet<string>): void {
  for (const address of [...speaker.announced]) {
    if (keep.has(address) && speaker.announcer) continue;
    speaker.announced.delete(address);
    speaker.announcer?.withdraw(address);
    speaker.logger.info({ address }, 'stopped announcing');
    speaker.onStopped?.(address, servicesOf(speaker, address));
  }
  if (!speaker.announcer) return;
  for (const address of keep) {
    if (speaker.announced.has(address)) continue;
    speaker.announced.add(address);
    speaker.announcer.announce(address);
    speaker.logger.info({ address }, 'started announcing');
    speaker.onStarted?.(address, servicesOf(speaker, address), speaker.previous.get(address) ?? '');
    speaker.previous.delete(address);
  }
}

/** Applies the latest decision about an address, unless it is outdated. */
async function applyPlan(speaker: SpeakerState, key: string): Promise<void> {
  if (key.startsWith(END)) return endSession(speaker, key.slice(END.length));
  const what = speaker.plan.get(key);
  const identity = speaker.session.identity;
  if (what === undefined || identity === null || speaker.closed) return;
  const metadata = addressLeaseMetadata(key, speaker.namespace);
  const current = speaker.leases.get(`${metadata.namespace}/${metadata.name}`);
  if (what === 'release' && speaker.announced.has(key)) return;
  // The watch may have reported another owner since the decision: the write would succeed, and take its address.
  const owner = current?.spec?.holderIdentity ?? '';
  if (owner !== '' && owner !== identity && !speaker.sessions.isOver(owner)) return;
  if (what === 'remove' || (what === 'release' && !speaker.candidates?.wanted.has(key))) {
    if (current) await remove(speaker, current);
  } else if (what === 'release') {
    if (current)
      speaker.leases.record(
        await speaker.client.update(RESOURCES.leases, releasedLease(current), limited(speaker)),
      );
  } else {
    // The other nodes have to know this node's short lease duration before it owns an address.
    if (!speaker.session.mayAct() || !speaker.session.isBusy) return;
    const before = nodeOfSession(current?.spec?.holderIdentity ?? '');
    const written = await writeOwner(speaker, current ?? { metadata }, identity);
    if (before !== speaker.node) speaker.previous.set(key, before);
    speaker.leases.record(written);
  }
  if (speaker.plan.get(key) === what) speaker.plan.delete(key);
  scheduleEvaluation(speaker);
}

function limited(speaker: SpeakerState): { signal: AbortSignal } {
  return { signal: AbortSignal.any([speaker.signal, AbortSignal.timeout(WRITE_MS)]) };
}

function writeOwner(speaker: SpeakerState, lease: Lease, owner: string): Promise<Lease> {
  const now = `${new Date(speaker.clock.now()).toISOString().slice(0, 23)}000Z`;
  const spec = {
    ...lease.spec,
    holderIdentity: owner,
    acquireTime: now,
    renewTime: now,
    leaseTransitions: (lease.spec?.leaseTransitions ?? -1) + 1,
  };
  if (lease.metadata?.resourceVersion === undefined)
    return speaker.client.create(RESOURCES.leases, { ...lease, spec }, limited(speaker));
  return speaker.client.update(RESOURCES.leases, { ...lease, spec }, limited(speaker));
}

async function remove(speaker: SpeakerState, lease: Lease): Promise<void> {
  const { name = '', resourceVersion = '', uid = '' } = lease.metadata ?? {};
  try {
    await speaker.client.delete(RESOURCES.leases, name, {
      namespace: speaker.namespace,
      resourceVersion,
      uid,
      ...limited(speaker),
    });
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
function findSilentNodes(speaker: SpeakerState, lasting: ReadonlyMap<string, string>): number {
  let soonest = Number.POSITIVE_INFINITY;
  for (const { node: name, ageMs, durationMs } of speaker.sessions.ages()) {
    if (name === speaker.node) continue;
    if (ageMs < durationMs / 2) {
      soonest = Math.min(soonest, durationMs / 2 - ageMs);
      continue;
    }
    const rank = byPreference([...lasting.keys()], name).indexOf(speaker.node);
    if (rank < 0) continue;
    const turn = rank * END_RANK_DELAY_MS;
    const suspectMs = rank < FIRST_OBSERVERS ? durationMs / 2 : durationMs + turn;
    if (ageMs < suspectMs) {
      soonest = Math.min(soonest, suspectMs - ageMs);
      continue;
    }
    speaker.suspect = { name, durationMs };
    speaker.apiHealth.probe();
    const isHealthy = Math.min(speaker.apiHealth.healthyMs(), speaker.session.actingMs()) >= durationMs / 4;
    if (ageMs >= durationMs + turn && isHealthy) speaker.addToQueue(END + name);
    // 2 ms more, so that the deadline has passed when the timer fires.
    soonest = Math.min(soonest, PROBE_MS, Math.max(END_RANK_DELAY_MS, durationMs + turn - ageMs + 2));
  }
  return soonest;
}

/** Reads the Lease of the silent node, since the watch may lag behind. */
async function readSuspect(speaker: SpeakerState): Promise<void> {
  const name = sessionLeaseMetadata(speaker.suspect.name, 1).name;
  try {
    const lease = await speaker.client.get(RESOURCES.leases, name, speaker.namespace, limited(speaker));
    const known = speaker.leases.get(`${speaker.namespace}/${name}`);
    if (lease.metadata?.resourceVersion !== known?.metadata?.resourceVersion) speaker.leases.record(lease);
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
  }
}

/**
 * Ends the session of a node that did not renew it; the write fails if the node renewed it in the
 * meantime.
 */
async function endSession(speaker: SpeakerState, name: string): Promise<void> {
  const lease = speaker.sessions.expired(() => 0).find((one) => nodeOfLease(one) === name);
  if (!lease || speaker.closed || lease.spec?.holderIdentity === speaker.session.identity) return;
  try {
    const ended = releasedLease(lease);
    const written = await speaker.client.update(RESOURCES.leases, ended, limited(speaker));
    speaker.logger.warn(
      { session: lease.spec?.holderIdentity },
      'ended the session of a silent node: its addresses are free',
    );
    speaker.leases.record(written);
  } catch (error) {
    if (!hasReason(error, 'Conflict', 'NotFound')) throw error;
  }
}

function servicesOf(speaker: SpeakerState, address: string): readonly string[] {
  return speaker.candidates?.wanted.get(address)?.services ?? [];
}

/** Prefix of the queue keys that name nodes whose sessions have to be ended; other keys are addresses. */
const END = 'end ';

import type { NetnsRef } from '../kernel/netns.ts';
import { familyOf, type IPFamily, type SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { type EndpointKey, endpointKey } from '../service/endpoint-key.ts';
import type { Change, Frontend, Pool, PortRef, Protocol, ServiceMap } from '../service/model.ts';
import { poolsOf } from '../service/pools.ts';
import { frontendKey } from '../service/service-compiler.ts';
import { type AnswerTimes, createAnswerTimes } from './answer-times.ts';
import { dial, type LateAnswer } from './dial.ts';
import { createEjectionPolicy, type Decision, type EjectionSettings } from './ejection-policy.ts';
import { EJECTION_RULES } from './ejection-rules.ts';
import type { Outcome } from './outcome.ts';
import { type PendingConnection, startPendingWatch } from './pending-watch.ts';

export interface FailoverOptions {
  readonly families: readonly IPFamily[];
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The programmed Service map; null: none yet. */
  readonly map: () => ServiceMap | null;
  /**
   * Returns true if connection tracking has the mode's connections, so that deleting an entry sends the
   * client to another endpoint.
   */
  readonly tracked: () => boolean;
  /**
   * Which destinations sockets retransmit their SYNs to after `programUnansweredMs`; null: none. Connections to these
   * that are not answered in time reach another endpoint by the first of these SYNs.
   */
  readonly shortTimers?: () => { covers(address: string): boolean } | null;
  /** Called with all ejected endpoints, for `ServiceTable.setEjected`. */
  readonly onEjected: (endpoints: ReadonlySet<EndpointKey>) => void;
  /** An endpoint was ejected or returned. For events and metrics. */
  readonly onVerdict?: (verdict: FailoverVerdict) => void;
  /**
   * Returns true if network policies may be the reason for an unanswered connection, which is then ignored.
   * `client` null: this node's own check. Default: never.
   */
  readonly mayBeDenied?: (connection: {
    readonly client: string | null;
    readonly endpoint: SocketAddress;
    readonly protocol: Protocol;
  }) => boolean;
  /** See PendingWatchOptions. */
  readonly onBegun?: (event: Uint8Array, weight: number) => void;
  readonly onUnanswered?: (count: number) => void;
  readonly onOverrun?: () => void;
  readonly settings?: EjectionSettings;
}

export type FailoverVerdict = Exclude<Decision, { kind: 'check' }> & {
  /** The Service through which the endpoint failed last. */
  readonly owner: PortRef;
};

/** Ejects endpoints that do not answer, and returns them to use. */
export interface Failover {
  /** Reports an outcome that a BPF program or a proxy observed. */
  report(outcome: Outcome): void;
  /** Call after a change was programmed: drops endpoints that no longer serve. */
  follow(change: Change): void;
  /** The currently ejected endpoints. */
  readonly ejected: ReadonlySet<EndpointKey>;
  close(): void;
}

/** Time during which pending connections to an endpoint that answers late are not deleted. */
const SLOW_FOR_MS = 600_000;
const { agentCheckMs, agentUnansweredMs, earlyUnansweredMs, fastAnswerMs } = EJECTION_RULES;

/** What is known of the endpoints of a node. */
interface Watched {
  readonly options: FailoverOptions;
  /** Details of the endpoints that the policy tracks. */
  readonly known: Map<EndpointKey, { readonly endpoint: SocketAddress; readonly owner: PortRef }>;
  /** Endpoints that answer late, and the end of their exemption. */
  readonly slow: Map<EndpointKey, number>;
  readonly answerTimes: AnswerTimes;
}

export function startFailover(options: FailoverOptions): Failover {
  const { families, netns, clock, logger, map, tracked, settings = EJECTION_RULES } = options;
  const policy = createEjectionPolicy(settings);
  const watched: Watched = {
    options,
    known: new Map(),
    slow: new Map(),
    answerTimes: createAnswerTimes(clock),
  };
  const { known, slow, answerTimes } = watched;
  let cancel: (() => void) | null = null;
  let closed = false;

  function observe(outcome: Outcome): void {
    const { endpoint, protocol } = outcome;
    const key = endpointKey(endpoint.ip, endpoint.port, protocol);
    if (outcome.kind === 'success' && !policy.isTracked(key)) return;
    if (outcome.kind === 'timeout' && options.mayBeDenied?.(outcome)) return;
    const pools = poolsWith(watched, key, outcome);
    if (pools) carryOut(policy.observe(clock.now(), key, outcome, pools));
  }

  /** Begins a check at once, so that its result is known when the connection counts as unanswered. */
  function late(connection: PendingConnection): void {
    const { mayBeDenied } = options;
    if (mayBeDenied?.(connection) || mayBeDenied?.({ ...connection, client: null })) return;
    const key = keyOf(connection);
    const pools = poolsWith(watched, key, connection);
    if (!pools) return;
    for (const { endpoint } of policy.late(clock.now(), key, pools))
      void check(endpoint, connection.endpoint, earlyUnansweredMs - fastAnswerMs);
    schedule();
  }

  function carryOut(decisions: readonly Decision[]): void {
    for (const decision of decisions) {
      const about = known.get(decision.endpoint);
      if (!about) continue;
      if (decision.kind === 'check') {
        void check(decision.endpoint, about.endpoint, agentCheckMs);
        continue;
      }
      logger.info({ endpoint: decision.endpoint, cause: decision.cause }, `endpoint ${decision.kind}`);
      options.onEjected(policy.ejected);
      options.onVerdict?.({ ...decision, owner: about.owner });
    }
    schedule();
  }

  function answeredLate(key: EndpointKey, answer: LateAnswer, timeoutMs: number): void {
    if (closed) return;
    for (const [other, until] of slow) if (until <= clock.now()) slow.delete(other);
    if (answer === 'slow' && timeoutMs < agentCheckMs) answerTimes.forget(key);
    else if (answer === 'slow') {
      slow.set(key, clock.now() + SLOW_FOR_MS);
      logger.info({ endpoint: key }, 'endpoint answers late: its pending connections are not deleted');
    }
    carryOut(policy.observe(clock.now(), key, { kind: 'success', client: '' }, []));
  }

  async function check(key: EndpointKey, endpoint: SocketAddress, timeoutMs: number): Promise<void> {
    const result = await dial(endpoint, timeoutMs, clock, netns, (answer) =>
      answeredLate(key, answer, timeoutMs),
    );
    if (closed) return;
    // Only TCP is checked.
    const isNoSign =
      result === 'timeout' && options.mayBeDenied?.({ client: null, endpoint, protocol: 'TCP' });
    carryOut(policy.checked(clock.now(), key, isNoSign ? null : result));
  }

  function schedule(): void {
    cancel?.();
    cancel = null;
    const next = policy.nextDue;
    if (closed || next === null) {
      if (!policy.active) known.clear();
      return;
    }
    cancel = clock.after(Math.max(1, next - clock.now()), () => {
      cancel = null;
      carryOut(policy.due(clock.now()));
    });
  }

  /** Connections are watched in modes that use connection tracking; the others report outcomes. */
  let watch: { close(): void } | null = null;
  function updateWatch(): void {
    if (tracked() === (watch !== null)) return;
    watch?.close();
    watch = watch === null ? startWatch() : null;
  }
  const startWatch = () =>
    startPendingWatch({
      families,
      netns,
      clock,
      logger,
      patience: (connection) => patience(watched, connection),
      knowsServices: () => map() !== null,
      isMovable: (connection) => isMovable(watched, connection),
      mayBeEarly: () => (options.shortTimers?.() ?? null) !== null,
      onLate: late,
      onAnswer: (connection, isFast) => answerTimes.answered(keyOf(connection), isFast),
      wantsSuccess: () => policy.active,
      onOutcome: observe,
      ...(options.onBegun ? { onBegun: options.onBegun } : {}),
      ...(options.onUnanswered ? { onUnanswered: options.onUnanswered } : {}),
      ...(options.onOverrun ? { onOverrun: options.onOverrun } : {}),
    });
  updateWatch();

  return {
    report: observe,
    follow({ frontends }) {
      updateWatch();
      if (!policy.active) return;
      const before = policy.ejected.size;
      for (const { before: old, after } of frontends) {
        if (!old) continue;
        const now = new Set(after ? keysOfAll(after) : []);
        for (const key of keysOfAll(old)) {
          if (!policy.isTracked(key) || now.has(key)) continue;
          policy.forget(key);
          known.delete(key);
        }
      }
      if (policy.ejected.size !== before) options.onEjected(policy.ejected);
      schedule();
    },
    get ejected() {
      return policy.ejected;
    },
    close() {
      closed = true;
      cancel?.();
      watch?.close();
    },
  };
}

/** Returns the frontend that a client connected to; null: none, or one without failover. */
function frontendOf(
  watched: Watched,
  { destination, protocol }: Pick<Outcome, 'destination' | 'protocol'>,
): Frontend | null {
  const family = familyOf(destination.ip);
  const frontends = watched.options.map()?.frontends;
  if (!family || !frontends) return null;
  const frontend =
    frontends.get(frontendKey(family, destination.ip, protocol, destination.port)) ??
    frontends.get(frontendKey(family, null, protocol, destination.port));
  return frontend?.options.failover ? frontend : null;
}

/** Returns the pools of the Service, and keeps the endpoint's details; null: no failover, or no such endpoint. */
function poolsWith(
  watched: Watched,
  key: EndpointKey,
  connection: PendingConnection,
): EndpointKey[][] | null {
  const frontend = frontendOf(watched, connection);
  if (!frontend) return null;
  const pools = poolsOf(frontend).map((pool) => keysOf(pool, connection.protocol));
  if (!pools.some((pool) => pool.includes(key))) return null;
  watched.known.set(key, { endpoint: connection.endpoint, owner: frontend.owner });
  return pools;
}

/** Returns how long a connection may be unanswered before its entry is deleted; null: forever. */
function patience(watched: Watched, connection: PendingConnection): number | null {
  const key = keyOf(connection);
  // It is far away or very busy: deleting its connections would only break them.
  if (watched.slow.size > 0 && (watched.slow.get(key) ?? 0) > watched.options.clock.now()) return null;
  const frontend = frontendOf(watched, connection);
  if (!frontend) return null;
  const isEarly =
    watched.options.shortTimers?.()?.covers(connection.destination.ip) === true &&
    watched.answerTimes.isFast(key) &&
    hasOther(frontend, connection.endpoint);
  return isEarly ? earlyUnansweredMs : agentUnansweredMs;
}

/** Returns false if the next SYN of a connection would reach the same endpoint: the Service has no other one. */
function isMovable(watched: Watched, connection: PendingConnection): boolean {
  const frontend = frontendOf(watched, connection);
  if (!frontend || hasOther(frontend, connection.endpoint)) return true;
  return poolsOf(frontend).every(({ endpoints }) => endpoints.length === 0);
}

const keyOf = ({ endpoint, protocol }: PendingConnection): EndpointKey =>
  endpointKey(endpoint.ip, endpoint.port, protocol);

/** Returns true if a new connection may reach another endpoint. */
const hasOther = (frontend: Frontend, { ip, port }: SocketAddress): boolean =>
  poolsOf(frontend).some(({ endpoints }) => endpoints.some((one) => one.ip !== ip || one.port !== port));

/** Returns the keys of a pool's endpoints, including ejected ones. */
function keysOf({ endpoints, ejected = [] }: Pool, protocol: Frontend['protocol']): EndpointKey[] {
  return [...endpoints, ...ejected].map(({ ip, port }) => endpointKey(ip, port, protocol));
}

const keysOfAll = (frontend: Frontend): EndpointKey[] =>
  poolsOf(frontend).flatMap((pool) => keysOf(pool, frontend.protocol));

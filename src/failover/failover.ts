import type { NetnsRef } from '../kernel/netns.ts';
import type { IPFamily, SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { type EndpointKey, endpointKey } from '../service/endpoint-key.ts';
import type { Change, Frontend, Pool, PortRef, Protocol, ServiceMap } from '../service/model.ts';
import { poolsOf } from '../service/pools.ts';
import { dial, type LateAnswer } from './dial.ts';
import { createEjectionPolicy, type Decision, type EjectionSettings } from './ejection-policy.ts';
import { EJECTION_RULES } from './ejection-rules.ts';
import type { Outcome, PendingConnection } from './outcome.ts';
import { createPatience, keyOf, type PatienceOptions } from './patience.ts';
import { type PendingEvent, startPendingWatch } from './pending-watch.ts';

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
  /** See PatienceOptions. Default: there are none. */
  readonly shortTimers?: PatienceOptions['shortTimers'];
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
  /** The entries of so many unanswered connections were deleted. For metrics. */
  readonly onUnanswered?: (count: number) => void;
  /** The kernel dropped events of connection tracking. For metrics. */
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

const { agentCheckMs, earlyUnansweredMs, fastAnswerMs } = EJECTION_RULES;

export function startFailover(options: FailoverOptions): Failover {
  const { families, netns, clock, logger, map, tracked, settings = EJECTION_RULES } = options;
  const { shortTimers = () => null } = options;
  const patience = createPatience({ clock, map, shortTimers });
  const policy = createEjectionPolicy(settings);
  const decisions = createDecisions(
    policy,
    options,
    (key, endpoint) => void check(key, endpoint, agentCheckMs),
  );
  const { carryOut, schedule } = decisions;
  let closed = false;

  function observe(outcome: Outcome): void {
    const { endpoint, protocol } = outcome;
    const key = endpointKey(endpoint.ip, endpoint.port, protocol);
    if (outcome.kind === 'success' && !policy.isTracked(key)) return;
    if (outcome.kind === 'timeout' && options.mayBeDenied?.(outcome)) return;
    const pools = poolsWith(key, outcome);
    if (pools) carryOut(policy.observe(clock.now(), key, outcome, pools));
  }

  /** Returns the pools of the Service, and keeps the endpoint's details; null: no failover, or no such endpoint. */
  function poolsWith(key: EndpointKey, connection: PendingConnection): EndpointKey[][] | null {
    const frontend = patience.frontendOf(connection);
    if (!frontend) return null;
    const pools = poolsOf(frontend).map((pool) => keysOf(pool, connection.protocol));
    if (!pools.some((pool) => pool.includes(key))) return null;
    decisions.note(key, { endpoint: connection.endpoint, owner: frontend.owner });
    return pools;
  }

  /** Begins a check at once, so that its result is known when the connection counts as unanswered. */
  function late(connection: PendingConnection): void {
    const { mayBeDenied } = options;
    if (mayBeDenied?.(connection) || mayBeDenied?.({ ...connection, client: null })) return;
    const key = keyOf(connection);
    const pools = poolsWith(key, connection);
    if (!pools) return;
    for (const { endpoint } of policy.late(clock.now(), key, pools))
      void check(endpoint, connection.endpoint, earlyUnansweredMs - fastAnswerMs);
    schedule();
  }

  function answeredLate(key: EndpointKey, answer: LateAnswer, timeoutMs: number): void {
    if (closed) return;
    if (answer === 'slow' && timeoutMs < agentCheckMs) patience.notFast(key);
    else if (answer === 'slow') {
      patience.slow(key);
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

  function followPending(event: PendingEvent): void {
    switch (event.kind) {
      case 'outcome':
        observe(event.outcome);
        break;
      case 'late':
        late(event.connection);
        break;
      case 'answer':
        patience.answered(event.connection, event.isFast);
        break;
      case 'deleted':
        options.onUnanswered?.(event.count);
        break;
      case 'lost':
        options.onOverrun?.();
        break;
    }
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
      patience,
      wantsSuccess: () => policy.active,
      onEvent: followPending,
      ...(options.onBegun ? { onBegun: options.onBegun } : {}),
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
          decisions.forget(key);
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
      decisions.close();
      watch?.close();
    },
  };
}

/** Details of an endpoint that the policy tracks. */
interface Tracked {
  readonly endpoint: SocketAddress;
  /** The Service through which it failed last. */
  readonly owner: PortRef;
}

/** Executes the policy's decisions, and asks it for the next when they are due. */
function createDecisions(
  policy: ReturnType<typeof createEjectionPolicy>,
  { clock, logger, onEjected, onVerdict }: FailoverOptions,
  check: (key: EndpointKey, endpoint: SocketAddress) => void,
) {
  const known = new Map<EndpointKey, Tracked>();
  let cancel: (() => void) | null = null;
  let closed = false;

  function carryOut(decisions: readonly Decision[]): void {
    for (const decision of decisions) {
      const about = known.get(decision.endpoint);
      if (!about) continue;
      if (decision.kind === 'check') {
        check(decision.endpoint, about.endpoint);
        continue;
      }
      logger.info({ endpoint: decision.endpoint, cause: decision.cause }, `endpoint ${decision.kind}`);
      onEjected(policy.ejected);
      onVerdict?.({ ...decision, owner: about.owner });
    }
    schedule();
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

  return {
    carryOut,
    schedule,
    note: (key: EndpointKey, tracked: Tracked) => void known.set(key, tracked),
    forget: (key: EndpointKey) => void known.delete(key),
    close() {
      closed = true;
      cancel?.();
    },
  };
}

/** Returns the keys of a pool's endpoints, including ejected ones. */
function keysOf({ endpoints, ejected = [] }: Pool, protocol: Frontend['protocol']): EndpointKey[] {
  return [...endpoints, ...ejected].map(({ ip, port }) => endpointKey(ip, port, protocol));
}

const keysOfAll = (frontend: Frontend): EndpointKey[] =>
  poolsOf(frontend).flatMap((pool) => keysOf(pool, frontend.protocol));

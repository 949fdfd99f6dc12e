import type { EndpointKey } from '../../service/endpoint-key.ts';
import { mostEjected } from '../../service/endpoint-selection.ts';
import type { Outcome } from './outcome.ts';

/** When an endpoint is taken out of use, and for how long. */
export interface EjectionSettings {
  /** So many timeouts, … */
  readonly timeouts: number;
  /** … of so many different clients, with no answer in between, … */
  readonly clients: number;
  /** … within this time. */
  readonly windowMs: number;
  /** How long an endpoint is out the first time; each further time twice as long. */
  readonly firstMs: number;
  readonly mostMs: number;
  /** An endpoint that has served this long since its return begins again with `firstMs`. */
  readonly forgiveMs: number;
}

export const EJECTION_SETTINGS: EjectionSettings = {
  timeouts: 3,
  clients: 2,
  windowMs: 10_000,
  firstMs: 5_000,
  mostMs: 300_000,
  forgiveMs: 60_000,
};

/** What is to be done, or has been decided. */
export type Decision =
  | {
      readonly kind: 'ejected';
      readonly endpoint: EndpointKey;
      readonly cause: Cause;
      readonly forMs: number;
    }
  | { readonly kind: 'returned'; readonly endpoint: EndpointKey; readonly cause: 'answered' | 'trial' }
  /** This node is to connect to the endpoint itself, and to say by `checked` how that went. */
  | { readonly kind: 'check'; readonly endpoint: EndpointKey };

export type Cause = 'reset' | 'timeout';

/**
 * Decides which endpoints are out of use. Pure: time is passed in, in milliseconds.
 *
 * | state     | seen                                             | then                                        |
 * | --------- | ------------------------------------------------ | ------------------------------------------- |
 * | healthy   | a reset                                          | check: suspect                              |
 * | healthy   | a timeout                                        | check: suspect                              |
 * | suspect   | the check is refused                             | ejected                                     |
 * | suspect   | the check is not answered                        | check again a second later                  |
 * | suspect   | enough timeouts of enough clients (the check is one) | ejected                                 |
 * | suspect   | an answer, to anyone                             | healthy                                     |
 * | ejected   | failures                                         | ejected                                     |
 * | ejected   | an answer                                        | healthy, until `forgiveMs` with its record  |
 * | ejected   | its time is over                                 | check                                       |
 * | ejected   | the check fails                                  | ejected for twice as long                   |
 * | ejected   | the check fails after the longest time           | on trial                                    |
 * | on trial  | a failure                                        | ejected for the longest time                |
 * | on trial  | an answer                                        | healthy                                     |
 * | any       | removed from its Service, or not ready           | forgotten: when it is ready again, it is new |
 *
 * An endpoint stays where half of a Service's endpoints are out already, or it is the last.
 */
export interface EjectionPolicy {
  /** Out of use, the longest first. */
  readonly ejected: ReadonlySet<EndpointKey>;
  /** True while outcomes of kind success matter for this endpoint. */
  isTracked(endpoint: EndpointKey): boolean;
  /** True while anything is tracked. */
  readonly active: boolean;
  /**
   * Somebody's attempt to connect. `pools`: the endpoints of each pool of the Service that it may be in, those that
   * are out included.
   */
  observe(
    now: number,
    endpoint: EndpointKey,
    outcome: Pick<Outcome, 'kind' | 'client'>,
    pools: readonly (readonly EndpointKey[])[],
  ): Decision[];
  /** How the check that was asked for went; null: it could not be made. */
  checked(now: number, endpoint: EndpointKey, result: Outcome['kind'] | null): Decision[];
  /** The endpoint is gone from its Service or does not serve any more. */
  forget(endpoint: EndpointKey): void;
  /** What falls due by time alone. */
  due(now: number): Decision[];
  /** When `due` has something to say next; null: never. */
  readonly nextDue: number | null;
}

interface Failure {
  readonly kind: Cause;
  readonly client: string;
  readonly at: number;
}

interface Record {
  /** While suspect, the latest. */
  failures: Failure[];
  /** Until when it is out; null: in use. */
  until: number | null;
  /** How long it was out the last time; 0: never. */
  lastMs: number;
  /** When it came back. */
  returnedAt: number;
  /** Back without having answered. */
  onTrial: boolean;
  checking: boolean;
  /** No check before then: one that contradicts a client must not be asked again by each of its failures. */
  nextCheckAt: number;
  /** The last check of a suspect had no answer: another one, when it is time. */
  checkAgain: boolean;
  /** Of the Service through which it failed last. */
  pools: readonly (readonly EndpointKey[])[];
}

/** The node's own check, as a client. */
const THIS_NODE = 'this node';
const CHECK_AGAIN_MS = 1000;
/** Endpoints that are tracked; suspects beyond it are not. */
const MOST_TRACKED = 10_000;
const MOST_FAILURES = 16;

export function createEjectionPolicy(settings: EjectionSettings = EJECTION_SETTINGS): EjectionPolicy {
  const records = new Map<EndpointKey, Record>();
  const ejected = new Set<EndpointKey>();

  const hasRoom = (endpoint: EndpointKey, { pools }: Record): boolean =>
    pools.some((pool) => {
      if (!pool.includes(endpoint)) return false;
      const out = pool.filter((key) => ejected.has(key)).length;
      return out < mostEjected(pool.length);
    });

  const eject = (now: number, endpoint: EndpointKey, record: Record, cause: Cause): Decision[] => {
    if (!hasRoom(endpoint, record)) return [];
    const forgiven = !record.onTrial && now - record.returnedAt >= settings.forgiveMs;
    const forMs =
      record.lastMs === 0 || forgiven ? settings.firstMs : Math.min(record.lastMs * 2, settings.mostMs);
    Object.assign(record, { failures: [], checkAgain: false, onTrial: false });
    Object.assign(record, { until: now + forMs, lastMs: forMs });
    ejected.add(endpoint);
    return [{ kind: 'ejected', endpoint, cause, forMs }];
  };

  const bringBack = (
    now: number,
    endpoint: EndpointKey,
    record: Record,
    cause: 'answered' | 'trial',
  ): Decision[] => {
    ejected.delete(endpoint);
    Object.assign(record, { failures: [], until: null, returnedAt: now, onTrial: cause === 'trial' });
    return [{ kind: 'returned', endpoint, cause }];
  };

  const check = (now: number, endpoint: EndpointKey, record: Record): Decision[] => {
    if (record.checking || now < record.nextCheckAt) return [];
    Object.assign(record, { checking: true, checkAgain: false, nextCheckAt: now + CHECK_AGAIN_MS });
    return [{ kind: 'check', endpoint }];
  };

  const succeeded = (now: number, endpoint: EndpointKey, record: Record): Decision[] => {
    if (record.until !== null) return bringBack(now, endpoint, record, 'answered');
    Object.assign(record, { failures: [], checkAgain: false });
    if (record.onTrial) Object.assign(record, { onTrial: false, returnedAt: now });
    return [];
  };

  const failed = (now: number, endpoint: EndpointKey, record: Record, failure: Failure): Decision[] => {
    if (record.until !== null) return [];
    record.failures = record.failures
      .filter(({ at }) => now - at < settings.windowMs)
      .slice(1 - MOST_FAILURES);
    record.failures.push(failure);
    const refused = failure.kind === 'reset' && failure.client === THIS_NODE;
    const timeouts = record.failures.filter(({ kind }) => kind === 'timeout');
    const clients = new Set(record.failures.map(({ client }) => client)).size;
    const enough =
      refused ||
      record.onTrial ||
      (clients >= settings.clients && timeouts.length >= settings.timeouts) ||
      // A client was refused, and this node hears nothing.
      (failure.client === THIS_NODE && record.failures.some(({ kind }) => kind === 'reset'));
    if (enough) return eject(now, endpoint, record, failure.kind);
    if (failure.client !== THIS_NODE) return check(now, endpoint, record);
    record.checkAgain = true;
    return [];
  };

  /** An endpoint in use without a record of having been out, and without fresh failures, is as good as any. */
  const isForgettable = (now: number, record: Record): boolean =>
    record.until === null &&
    !record.checking &&
    !record.onTrial &&
    record.failures.every(({ at }) => now - at >= settings.windowMs) &&
    now >= record.nextCheckAt &&
    (record.lastMs === 0 || now - record.returnedAt >= settings.forgiveMs);

  const dueAt = (record: Record): number | null => {
    if (record.until !== null) return record.checking ? null : record.until;
    if (record.checking || record.onTrial) return null;
    if (record.checkAgain) return record.nextCheckAt;
    const lastFailure = record.failures.at(-1)?.at ?? Number.NEGATIVE_INFINITY;
    return Math.max(
      lastFailure + settings.windowMs,
      record.nextCheckAt,
      record.lastMs === 0 ? Number.NEGATIVE_INFINITY : record.returnedAt + settings.forgiveMs,
    );
  };

  return {
    ejected,
    isTracked: (endpoint) => records.has(endpoint),
    get active() {
      return records.size > 0;
    },
    observe(now, endpoint, { kind, client }, pools) {
      const known = records.get(endpoint);
      if (kind === 'success') return known ? succeeded(now, endpoint, known) : [];
      if (!known && records.size >= MOST_TRACKED) return [];
      const record = known ?? {
        failures: [],
        until: null,
        lastMs: 0,
        returnedAt: 0,
        onTrial: false,
        checking: false,
        nextCheckAt: 0,
        checkAgain: false,
        pools,
      };
      record.pools = pools;
      records.set(endpoint, record);
      return failed(now, endpoint, record, { kind, client, at: now });
    },
    checked(now, endpoint, result) {
      const record = records.get(endpoint);
      if (!record?.checking) return [];
      record.checking = false;
      if (result === 'success') return succeeded(now, endpoint, record);
      if (result === null) {
        if (record.until === null) record.checkAgain = true;
        else record.until = now + CHECK_AGAIN_MS;
        return [];
      }
      if (record.until === null) {
        return failed(now, endpoint, record, { kind: result, client: THIS_NODE, at: now });
      }
      if (record.lastMs >= settings.mostMs) return bringBack(now, endpoint, record, 'trial');
      record.lastMs = Math.min(record.lastMs * 2, settings.mostMs);
      record.until = now + record.lastMs;
      return [];
    },
    forget(endpoint) {
      records.delete(endpoint);
      ejected.delete(endpoint);
    },
    due(now) {
      const decisions: Decision[] = [];
      for (const [endpoint, record] of records) {
        const at = dueAt(record);
        if (at === null || at > now) continue;
        if (record.until !== null) {
          record.checking = true;
          decisions.push({ kind: 'check', endpoint });
        } else if (record.checkAgain) {
          decisions.push(...check(now, endpoint, record));
        } else if (isForgettable(now, record)) {
          records.delete(endpoint);
        }
      }
      return decisions;
    },
    get nextDue() {
      let next: number | null = null;
      for (const record of records.values()) {
        const at = dueAt(record);
        if (at !== null && (next === null || at < next)) next = at;
      }
      return next;
    },
  };
}

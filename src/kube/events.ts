import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type Client, hasReason } from './client.ts';
import { timestamp } from './timestamp.ts';
import { type Event, type KubeObject, RESOURCES, type Resource } from './types.ts';

export type EventType = 'Normal' | 'Warning';

export interface EventRecorderOptions {
  readonly client: Client;
  /** Name of the reporting component: "deployment-controller", "kubelet". */
  readonly component: string;
  /** The node of the component. */
  readonly host?: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Writes Events about objects. Calls return immediately and never throw: an event that cannot be written is logged. */
export interface EventRecorder {
  /** Records an event. `resource` is required for objects without a kind, such as items of lists. */
  event(object: KubeObject, type: EventType, reason: string, message: string, resource?: Resource): void;
  /** Resolves when all earlier events are written. */
  flush(): Promise<void>;
}

interface Known {
  name: string;
  count: number;
  lastAt: number;
}

/** As client-go's correlator: an equal event increments a count for this long, and each object has a limited burst. */
const SAME_MS = 600_000;
const BURST = 25;
const REFILL_MS = 300_000;
const MAX_KNOWN = 4096;
/** Maximum number of events that wait to be written; others are dropped: they are hints, not state. */
const MAX_PENDING = 1000;
/** Names of events end in nanoseconds, of which the clock gives the milliseconds. */
const MAX_SERIAL = 1_000_000;
/** Maximum number of names that are tried for one event. */
const MAX_NAMES = 10;

export function createEventRecorder(options: EventRecorderOptions): EventRecorder {
  const { client, component, host, clock, logger, signal } = options;
  const known = new Map<string, Known>();
  const budgets = new Map<string, { left: number; at: number }>();
  // Distinguishes events of the same millisecond; components and nodes start at different numbers.
  let serial = 7;
  for (const letter of `${host ?? ''}/${component}`)
    serial = (serial * 31 + letter.charCodeAt(0)) % MAX_SERIAL;
  let pending = 0;
  let dropped = 0;
  let tail: Promise<void> = Promise.resolve();

  /** A token bucket per object: BURST tokens, one more every REFILL_MS. */
  const admitted = (uid: string): boolean => {
    const now = clock.now();
    const budget = budgets.get(uid) ?? { left: BURST, at: now };
    const refilled = Math.floor((now - budget.at) / REFILL_MS);
    const left = Math.min(BURST, budget.left + refilled);
    remember(budgets, uid, {
      left: Math.max(0, left - 1),
      at: budget.at + refilled * REFILL_MS,
    });
    return left > 0;
  };
  const write = async (key: string, fresh: Event, at: number) => {
    const now = clock.now();
    const same = known.get(key);
    const namespace = fresh.metadata?.namespace ?? 'default';
    if (same && now - same.lastAt < SAME_MS) {
      same.count++;
      same.lastAt = now;
      const change = { count: same.count, lastTimestamp: fresh.lastTimestamp };
      try {
        await client.patch(RESOURCES.events, same.name, 'merge', change, { namespace });
        return;
      } catch (error) {
        // Expired in the meantime, as events do after an hour: recorded again.
        if (!hasReason(error, 'NotFound')) throw error;
      }
    }
    const made = await create(fresh, at);
    remember(known, key, { name: made.metadata?.name ?? '', count: 1, lastAt: now });
  };
  /** Creates an event; under another name if a recorder of another process took the name in the same millisecond. */
  const create = async (fresh: Event, at: number): Promise<Event> => {
    for (let attempt = 1; ; attempt++) {
      const { name = '' } = fresh.involvedObject ?? {};
      // As client-go names them: unique, and sorted by time.
      const suffix = (BigInt(at) * 1_000_000n + BigInt(nextSerial())).toString(16);
      const metadata = { ...fresh.metadata, name: `${name}.${suffix}` };
      try {
        return await client.create(RESOURCES.events, { ...fresh, metadata });
      } catch (error) {
        if (attempt === MAX_NAMES || !hasReason(error, 'AlreadyExists')) throw error;
      }
    }
  };

  return {
    event(object, type, reason, message, resource) {
      const { name = '', namespace, uid = '', resourceVersion } = object.metadata ?? {};
      const kind = object.kind ?? resource?.kind ?? '';
      if (signal.aborted || !admitted(uid || `${kind}/${namespace}/${name}`)) return;
      if (pending >= MAX_PENDING) {
        if (dropped++ === 0) logger.warn({ component }, 'dropping events: the API server is too slow');
        return;
      }
      dropped = 0;
      const now = clock.now();
      const time = timestamp(now);
      const apiVersion = object.apiVersion ?? (resource ? versionOf(resource) : 'v1');
      const fresh: Event = {
        metadata: { namespace: namespace || 'default' },
        involvedObject: {
          apiVersion,
          kind,
          name,
          ...(namespace ? { namespace } : {}),
          ...(uid ? { uid } : {}),
          ...(resourceVersion ? { resourceVersion } : {}),
        },
        type,
        reason,
        message: message.slice(0, 1024),
        source: { component, ...(host ? { host } : {}) },
        reportingComponent: component,
        reportingInstance: host ?? '',
        firstTimestamp: time,
        lastTimestamp: time,
        count: 1,
      };
      const key = [uid, kind, namespace, name, type, reason, message].join('\0');
      pending++;
      tail = tail
        .then(() => (signal.aborted ? undefined : write(key, fresh, now)))
        .catch((error: unknown) => {
          // A namespace that is being deleted accepts no events.
          if (hasReason(error, 'Forbidden', 'NotFound')) return;
          logger.warn(
            { component, reason, object: `${kind}/${name}` },
            `failed to write an event: ${messageOf(error)}`,
          );
        })
        .finally(() => {
          pending--;
        });
    },
    flush: () => tail,
  };

  function nextSerial(): number {
    serial = (serial + 1) % MAX_SERIAL;
    return serial;
  }
}

function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next().value;
  if (map.size > MAX_KNOWN && oldest !== undefined) map.delete(oldest);
}

function versionOf(resource: Resource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

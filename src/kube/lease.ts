import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type Client, hasReason } from './client.ts';
import { type Lease, type OwnerReference, RESOURCES } from './types.ts';

export interface LeaseOptions {
  readonly client: Client;
  readonly namespace: string;
  readonly name: string;
  /** Identity of the holder: a node's name, or a process's unique name. */
  readonly identity: string;
  readonly durationSeconds: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** Renews a Lease without competitors every quarter of its duration: a heartbeat, as kubelets' in kube-node-lease. */
export async function renewLease(
  options: LeaseOptions & { readonly ownerReferences?: OwnerReference[] },
): Promise<void> {
  const { namespace, name, clock, signal, logger } = options;
  let known: Lease | null = null;
  while (!signal.aborted) {
    try {
      known ??= await read(options);
      known = await write(
        options,
        known,
        known?.spec?.acquireTime ?? microTime(clock),
        options.ownerReferences,
      );
      await pause(clock, options.durationSeconds * 250 * (0.95 + options.random() / 10), signal);
    } catch (error) {
      if (signal.aborted) return;
      known = null;
      // Another client wrote in between: read and write again immediately.
      if (hasReason(error, 'Conflict', 'AlreadyExists')) continue;
      logger.warn({ lease: `${namespace}/${name}` }, `failed to renew the lease: ${messageOf(error)}`);
      await pause(clock, Math.min(1000, options.durationSeconds * 100), signal);
    }
  }
}

export interface ElectionOptions extends LeaseOptions {
  /** Called when the lease is acquired; its signal aborts when it is lost or released. */
  readonly onHeld: (signal: AbortSignal) => void;
  /** Called after the signal of `onHeld` has aborted. */
  readonly onLost?: () => void;
}

/**
 * Takes part in an election until the signal aborts, then releases the lease. The holder stops after two thirds of the
 * duration without a renewal, and others wait for the whole duration after the last change that they saw, by their own
 * clocks: clocks need not agree, and two processes never hold it at the same time (client-go leaderelection).
 */
export async function holdLease(options: ElectionOptions): Promise<void> {
  const { client, namespace, name, identity, clock, signal, logger } = options;
  const durationMs = options.durationSeconds * 1000;
  let held: AbortController | null = null;
  let renewedAt = Number.NEGATIVE_INFINITY;
  let cancelDeadline = () => {};
  let observed: { record: string; at: number } = { record: '', at: Number.NEGATIVE_INFINITY };

  const lose = () => {
    cancelDeadline();
    if (!held) return;
    held.abort(new FairleadError(`lost the lease ${namespace}/${name}`, { op: 'hold lease', code: 'ended' }));
    held = null;
    options.onLost?.();
  };
  while (!signal.aborted) {
    const askedAt = clock.now();
    try {
      const lease = await read(options);
      const record = JSON.stringify(lease?.spec ?? null);
      if (record !== observed.record) observed = { record, at: clock.now() };
      const holder = lease?.spec?.holderIdentity ?? '';
      const seconds = (lease?.spec?.leaseDurationSeconds ?? options.durationSeconds) * 1000;
      const free = holder === '' || holder === identity || clock.now() - observed.at >= seconds;
      if (free) {
        const acquired = holder === identity ? lease?.spec?.acquireTime : undefined;
        const written = await write(options, lease, acquired ?? microTime(clock));
        observed = { record: JSON.stringify(written.spec), at: clock.now() };
        // The lease counts from before the request: the response may have taken long.
        renewedAt = askedAt;
        cancelDeadline();
        const left = renewedAt + (durationMs * 2) / 3 - clock.now();
        if (left <= 0) lose();
        else {
          cancelDeadline = clock.after(left, lose);
          if (!held) {
            held = new AbortController();
            options.onHeld(held.signal);
          }
        }
      } else lose();
    } catch (error) {
      if (!signal.aborted && !hasReason(error, 'Conflict', 'AlreadyExists')) {
        logger.warn({ lease: `${namespace}/${name}` }, `election: ${messageOf(error)}`);
      }
    }
    await pause(clock, (durationMs / 6) * (0.9 + options.random() / 5), signal);
  }
  const mine = held !== null;
  lose();
  if (!mine) return;
  // Releases the lease, so that the next holder need not wait. Without the signal, which has aborted.
  try {
    const lease = await client.get(RESOURCES.leases, name, namespace);
    if (lease.spec?.holderIdentity !== identity) return;
    await client.update(RESOURCES.leases, releasedLease(lease));
  } catch (error) {
    logger.debug({ lease: `${namespace}/${name}` }, `failed to release the lease: ${messageOf(error)}`);
  }
}

async function read(options: LeaseOptions): Promise<Lease | null> {
  const { client, namespace, name, signal } = options;
  try {
    return await client.get(RESOURCES.leases, name, namespace, { signal });
  } catch (error) {
    if (hasReason(error, 'NotFound')) return null;
    throw error;
  }
}

function write(
  options: LeaseOptions,
  current: Lease | null,
  acquireTime: string,
  ownerReferences?: OwnerReference[],
): Promise<Lease> {
  const { client, namespace, name, identity, clock, signal } = options;
  const before = current?.spec?.holderIdentity ?? '';
  const transitions = current?.spec?.leaseTransitions ?? 0;
  const spec = {
    ...current?.spec,
    holderIdentity: identity,
    leaseDurationSeconds: options.durationSeconds,
    acquireTime,
    renewTime: microTime(clock),
    leaseTransitions: before !== '' && before !== identity ? transitions + 1 : transitions,
  };
  if (current) return client.update(RESOURCES.leases, { ...current, spec }, { signal });
  const metadata = { name, namespace, ...(ownerReferences ? { ownerReferences } : {}) };
  return client.create(RESOURCES.leases, { metadata, spec }, { signal });
}

/** Returns a lease without its holder. The API server refuses an empty holderIdentity. */
export function releasedLease(lease: Lease): Lease {
  const { holderIdentity, ...spec } = lease.spec ?? {};
  return { ...lease, spec };
}

/** Formats the time as meta/v1 MicroTime: leases have microseconds. */
function microTime(clock: Clock): string {
  return new Date(clock.now()).toISOString().replace('Z', '000Z');
}

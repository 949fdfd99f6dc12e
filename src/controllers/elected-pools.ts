import { holdLease } from '../kube/lease.ts';
import { ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import { RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import { followCache } from './cache.ts';
import { type AddressContext, startLoadBalancerAddresses } from './load-balancer-addresses.ts';

/** The Lease of the only process that assigns addresses. */
export const POOLS_LEASE = 'load-balancer-pools';
export const POOLS_NAMESPACE = 'kube-system';
const DURATION_SECONDS = 15;

/**
 * Assigns addresses to Services of type LoadBalancer if no control plane of ours does: of all callers, each with its
 * own `identity`, only the holder of a Lease is active. All must have the same pools. Resolves after the signal aborts.
 */
export async function electPools(
  context: Omit<AddressContext, 'caches'>,
  identity: string,
  pools: readonly LoadBalancerPool[],
): Promise<void> {
  const { client, clock, random, logger, signal } = context;
  const work = async (held: AbortSignal) => {
    const holding = { ...context, signal: held };
    const caches = {
      services: followCache(holding, RESOURCES.services),
      namespaces: followCache(holding, RESOURCES.namespaces),
      nodes: followCache(holding, RESOURCES.nodes),
      leases: followCache(holding, RESOURCES.leases, { namespace: ANNOUNCEMENT_NAMESPACE }),
    };
    await Promise.all(Object.values(caches).map(({ informer }) => informer.synced));
    held.throwIfAborted();
    startLoadBalancerAddresses({ ...holding, caches }, pools);
    logger.info({ identity }, 'assigning load-balancer addresses');
  };
  await holdLease({
    client,
    namespace: POOLS_NAMESPACE,
    name: POOLS_LEASE,
    identity,
    durationSeconds: DURATION_SECONDS,
    clock,
    random,
    logger,
    signal,
    onHeld(held) {
      work(held).catch((error: unknown) => {
        if (!held.aborted) logger.error({ err: error }, `load-balancer pools: ${messageOf(error)}`);
      });
    },
  });
}

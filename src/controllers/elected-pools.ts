import { startInformer } from '../kube/informer.ts';
import { holdLease } from '../kube/lease.ts';
import { ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import { type Cache, createCache } from './cache.ts';
import { type AddressContext, startLoadBalancerAddresses } from './load-balancer-addresses.ts';

/** The Lease of the only process that assigns addresses. */
export const POOLS_LEASE = 'load-balancer-pools';
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
    const follow = <T extends KubeObject>(resource: Resource<T>, namespace?: string): Cache<T> =>
      createCache(
        client,
        resource,
        startInformer({
          client,
          resource,
          clock,
          random,
          logger,
          signal: held,
          ...(namespace === undefined ? {} : { namespace }),
        }),
        held,
      );
    const caches = {
      services: follow(RESOURCES.services),
      namespaces: follow(RESOURCES.namespaces),
      nodes: follow(RESOURCES.nodes),
      leases: follow(RESOURCES.leases, ANNOUNCEMENT_NAMESPACE),
    };
    await Promise.all(Object.values(caches).map(({ informer }) => informer.synced));
    held.throwIfAborted();
    startLoadBalancerAddresses({ ...context, signal: held, caches }, pools);
    logger.info({ identity }, 'assigning load-balancer addresses');
  };
  await holdLease({
    client,
    namespace: ANNOUNCEMENT_NAMESPACE,
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

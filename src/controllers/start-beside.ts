import { ANNOUNCEMENT_NAMESPACE } from '../kube/load-balancer.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { type Cache, followCache } from './cache.ts';
import { startLoadBalancerAddresses } from './load-balancer-addresses.ts';
import { startPolicyHints } from './policy-hints.ts';
import { dropManagedFields, type StartOptions } from './start.ts';
import { startExternalProvisioner } from './storage/external-provisioner.ts';

/**
 * Starts the controllers that kube-controller-manager leaves to others: addresses of load balancers, volumes of the
 * local-path provisioner, hints about network policies. `ready` is that of `startControllers`.
 */
export function startBesideControllers(start: StartOptions): { readonly ready: Promise<void> } {
  const { client, clock, random, logger, signal, options } = start;
  const follow = <T extends KubeObject>(resource: Resource<T>, namespace?: string): Cache<T> =>
    followCache(start, resource, {
      transform: dropManagedFields<T>,
      ...(namespace === undefined ? {} : { namespace }),
    });
  const caches = {
    namespaces: follow(RESOURCES.namespaces),
    nodes: follow(RESOURCES.nodes),
    pods: follow(RESOURCES.pods),
    services: follow(RESOURCES.services),
    leases: follow(RESOURCES.leases, ANNOUNCEMENT_NAMESPACE),
    persistentVolumes: follow(RESOURCES.persistentVolumes),
    persistentVolumeClaims: follow(RESOURCES.persistentVolumeClaims),
    storageClasses: follow(RESOURCES.storageClasses),
  };
  const context = { client, caches, clock, random, logger, signal };
  const ready = Promise.all(Object.values(caches).map(({ informer }) => informer.synced)).then(() => {
    signal.throwIfAborted();
    if (options.loadBalancerPools) startLoadBalancerAddresses(context, options.loadBalancerPools);
    if (options.localVolumes) startExternalProvisioner(context, options.localVolumes);
    startPolicyHints(context);
  });
  return { ready };
}

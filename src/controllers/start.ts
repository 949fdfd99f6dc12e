import type { Client } from '../kube/client.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import { startAutoscalers } from './autoscaling/autoscaler.ts';
import { type Cache, followCache } from './cache.ts';
import { startCertificateSigning } from './certificate-signing.ts';
import { startClusterRoleAggregation } from './cluster-role-aggregation.ts';
import type { Caches, ControllerContext, ControllerOptions } from './context.ts';
import { startCronJobs } from './cron-job.ts';
import { startDaemonSets } from './daemon-set.ts';
import { startDeployments } from './deployment.ts';
import { startDisruptionBudgets } from './disruption-budgets.ts';
import { startEndpointMirroring } from './endpoint-mirroring.ts';
import { startEndpointSlices } from './endpoint-slice.ts';
import { startEndpoints } from './endpoints.ts';
import { followKinds } from './followed-kinds.ts';
import { startGarbageCollector } from './garbage-collector.ts';
import { startGateways } from './gateways.ts';
import { startJobs } from './job/job.ts';
import { startLoadBalancerAddresses } from './load-balancer-addresses.ts';
import { startNamespaces } from './namespace.ts';
import { startNodeIpam } from './node-ipam.ts';
import { startNodeLifecycle } from './node-lifecycle.ts';
import { startPodGarbage } from './pod-garbage.ts';
import { startPolicyHints } from './policy-hints.ts';
import { startReplicaSets } from './replica-set.ts';
import { startResourceQuotas } from './resource-quota.ts';
import { startScheduler } from './scheduler.ts';
import { startServiceAccounts } from './service-account.ts';
import { startServiceCidrs } from './service-cidrs.ts';
import { startStatefulSets } from './stateful-set.ts';
import { startAttributesProtection } from './storage/attributes-protection.ts';
import { startPodClaims } from './storage/pod-claims.ts';
import { startVolumes } from './storage/volumes-controller.ts';

export interface StartOptions {
  readonly client: Client;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  /** Ends all controllers. */
  readonly signal: AbortSignal;
  readonly options: ControllerOptions;
  /** The controllers to run. Default: all. */
  readonly parts?: ControllerParts;
}

/** The programs of upstream whose work the controllers do. */
export interface ControllerParts {
  /** kube-controller-manager */
  readonly controllers: boolean;
  /** kube-scheduler */
  readonly scheduler: boolean;
}

/**
 * Starts every controller on shared informers. `ready` resolves when all copies are complete and all controllers run;
 * it rejects if the signal aborts before.
 */
export function startControllers(start: StartOptions): { readonly ready: Promise<void> } {
  const { client, clock, random, logger, signal } = start;
  const follow = <T extends KubeObject>(resource: Resource<T>, transform = dropManagedFields<T>): Cache<T> =>
    followCache(start, resource, { transform });
  const caches: Caches = {
    namespaces: follow(RESOURCES.namespaces),
    nodes: follow(RESOURCES.nodes),
    pods: follow(RESOURCES.pods),
    services: follow(RESOURCES.services),
    endpoints: follow(RESOURCES.endpoints),
    endpointSlices: follow(RESOURCES.endpointSlices),
    configMaps: follow(RESOURCES.configMaps, (map) =>
      map.metadata?.name === 'kube-root-ca.crt' ? dropManagedFields(map) : metadataOnly(map),
    ),
    secrets: follow(RESOURCES.secrets, metadataOnly),
    serviceAccounts: follow(RESOURCES.serviceAccounts),
    deployments: follow(RESOURCES.deployments),
    replicaSets: follow(RESOURCES.replicaSets),
    daemonSets: follow(RESOURCES.daemonSets),
    statefulSets: follow(RESOURCES.statefulSets),
    controllerRevisions: follow(RESOURCES.controllerRevisions),
    jobs: follow(RESOURCES.jobs),
    cronJobs: follow(RESOURCES.cronJobs),
    replicationControllers: follow(RESOURCES.replicationControllers),
    horizontalPodAutoscalers: follow(RESOURCES.horizontalPodAutoscalers),
    resourceQuotas: follow(RESOURCES.resourceQuotas),
    persistentVolumes: follow(RESOURCES.persistentVolumes),
    persistentVolumeClaims: follow(RESOURCES.persistentVolumeClaims),
    storageClasses: follow(RESOURCES.storageClasses),
    volumeAttributesClasses: follow(RESOURCES.volumeAttributesClasses),
    serviceCidrs: follow(RESOURCES.serviceCidrs),
    disruptionBudgets: follow(RESOURCES.podDisruptionBudgets),
    leases: follow(RESOURCES.leases),
  };
  const known = Object.values(caches) as Cache<KubeObject>[];
  const context: ControllerContext = {
    client,
    caches,
    clock,
    random,
    logger,
    signal,
    options: start.options,
  };
  const ready = Promise.all(known.map(({ informer }) => informer.synced)).then(() => {
    signal.throwIfAborted();
    const { controllers = true, scheduler = true } = start.parts ?? {};
    if (scheduler) startScheduler(context);
    if (!controllers) return;
    startNamespaces(context);
    startServiceAccounts(context);
    startNodeIpam(context);
    startNodeLifecycle(context);
    startReplicaSets(context);
    startDeployments(context);
    startDaemonSets(context);
    startStatefulSets(context);
    startJobs(context);
    startCronJobs(context);
    startAutoscalers(context);
    startPodClaims(context);
    startVolumes(context, start.options.localVolumes);
    startAttributesProtection(context);
    startDisruptionBudgets(context);
    startServiceCidrs(context);
    startPodGarbage(context);
    startPolicyHints(context);
    startEndpointSlices(context);
    startEndpoints(context);
    startEndpointMirroring(context);
    if (start.options.loadBalancerPools) startLoadBalancerAddresses(context, start.options.loadBalancerPools);
    startGateways(context);
    startClusterRoleAggregation(context);
    const followed = followKinds(context, known, usedByAllKinds);
    if (start.options.certificateSigner) startCertificateSigning(context, start.options.certificateSigner);
    startResourceQuotas(context, followed);
    startGarbageCollector(context, followed);
  });
  return { ready };
}

/** Half of an object's size, and not read here. A write without them preserves the server's. */
export function dropManagedFields<T extends KubeObject>(object: T): T {
  const { managedFields: _dropped, ...metadata } = object.metadata ?? {};
  return { ...object, metadata };
}

/** Reduces the objects of any kind to what controllers of all kinds read: quotas count the devices of ResourceClaims. */
function usedByAllKinds(object: KubeObject, { group, plural }: Resource): KubeObject {
  const isClaim = group === 'resource.k8s.io' && plural === 'resourceclaims';
  return isClaim ? dropManagedFields(object) : metadataOnly(object);
}

/** Reduces objects to their metadata, for kinds of which only names and owners are read here. */
function metadataOnly<T extends KubeObject>(object: T): T {
  const { apiVersion, kind, metadata } = object;
  return dropManagedFields({ apiVersion, kind, metadata } as T);
}

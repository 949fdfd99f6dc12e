import type { Client } from '../kube/client.ts';
import { hasReason, isOtherObject } from '../kube/client.ts';
import { createEventRecorder, type EventRecorder } from '../kube/events.ts';
import type {
  ConfigMap,
  ControllerRevision,
  CronJob,
  DaemonSet,
  Deployment,
  EndpointSlice,
  Endpoints,
  HorizontalPodAutoscaler,
  Job,
  Lease,
  Namespace,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  Pod,
  PodDisruptionBudget,
  ReplicaSet,
  ReplicationController,
  ResourceQuota,
  Secret,
  Service,
  ServiceAccount,
  ServiceCidr,
  StatefulSet,
  StorageClass,
  VolumeAttributesClass,
} from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createWorkQueue, type WorkQueue } from '../lib/work-queue.ts';
import type { LoadBalancerPool } from '../loadbalancer/address-pools.ts';
import type { Cache } from './cache.ts';
import type { CertificateSigner } from './certificate-signer.ts';
import type { LocalVolumes } from './storage/provisioning.ts';

export interface ControllerOptions {
  /** The pods' networks, primary family first, from which nodes get their podCIDRs. Empty: nodes set their own. */
  readonly clusterCidrs: readonly string[];
  /** Prefix lengths of the nodes' subnets. Default: /24 and /64. */
  readonly nodeMaskSizes?: { readonly ipv4?: number; readonly ipv6?: number };
  /** PEM of the API server's authority, published in each namespace as kube-root-ca.crt. */
  readonly caBundle?: string;
  /** Signs requests for certificates with the cluster's authority. Absent: another controller signs them. */
  readonly certificateSigner?: CertificateSigner;
  /** How long a node without a renewed Lease counts as alive. Default: the lease's duration. */
  readonly nodeGraceSeconds?: number;
  /** Directory of the local-path provisioner's volumes. Absent: claims of its class remain Pending. */
  readonly localVolumes?: LocalVolumes;
  /** Pools of the addresses of Services of type LoadBalancer. Absent: this process does not assign them. */
  readonly loadBalancerPools?: readonly LoadBalancerPool[];
}

/** The kinds that controllers follow. */
export interface Caches {
  readonly namespaces: Cache<Namespace>;
  readonly nodes: Cache<Node>;
  readonly pods: Cache<Pod>;
  readonly services: Cache<Service>;
  readonly endpoints: Cache<Endpoints>;
  readonly endpointSlices: Cache<EndpointSlice>;
  readonly configMaps: Cache<ConfigMap>;
  readonly secrets: Cache<Secret>;
  readonly serviceAccounts: Cache<ServiceAccount>;
  readonly deployments: Cache<Deployment>;
  readonly replicaSets: Cache<ReplicaSet>;
  readonly daemonSets: Cache<DaemonSet>;
  readonly statefulSets: Cache<StatefulSet>;
  readonly controllerRevisions: Cache<ControllerRevision>;
  readonly jobs: Cache<Job>;
  readonly cronJobs: Cache<CronJob>;
  readonly replicationControllers: Cache<ReplicationController>;
  readonly horizontalPodAutoscalers: Cache<HorizontalPodAutoscaler>;
  readonly resourceQuotas: Cache<ResourceQuota>;
  readonly persistentVolumes: Cache<PersistentVolume>;
  readonly persistentVolumeClaims: Cache<PersistentVolumeClaim>;
  readonly storageClasses: Cache<StorageClass>;
  readonly volumeAttributesClasses: Cache<VolumeAttributesClass>;
  readonly serviceCidrs: Cache<ServiceCidr>;
  readonly disruptionBudgets: Cache<PodDisruptionBudget>;
  readonly leases: Cache<Lease>;
}

/** The dependencies of a controller. */
export interface ControllerContext {
  readonly client: Client;
  readonly caches: Caches;
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly options: ControllerOptions;
}

/** The context of a controller that reads only some kinds. */
export type ContextWith<Kinds extends keyof Caches> = Omit<ControllerContext, 'caches' | 'options'> & {
  readonly caches: Pick<Caches, Kinds>;
};

export function recorderFor(context: ContextWith<never>, component: string): EventRecorder {
  return createEventRecorder({ ...context, component });
}

/**
 * Creates a controller's queue: conflicts and missing objects are retried without a log message, other errors are
 * logged.
 */
export function controllerQueue(
  context: ContextWith<never>,
  name: string,
  process: (key: string) => Promise<void>,
  concurrency = 16,
): WorkQueue {
  const logger = context.logger.child({ controller: name });
  return createWorkQueue({
    process,
    concurrency,
    clock: context.clock,
    random: context.random,
    signal: context.signal,
    onError(key, error, attempt) {
      // Another client changed or deleted the object first: the watch delivers the change.
      const expected =
        hasReason(error, 'Conflict', 'NotFound', 'AlreadyExists') || isOtherObject(error) || isEnding(error);
      if (expected && attempt <= 5) logger.debug({ key, attempt }, messageOf(error));
      else logger.warn({ key, attempt }, `${name}: ${messageOf(error)}`);
    },
  });
}

/** Reports whether an error refuses a creation in a namespace that is being deleted: the owner will be deleted too. */
export function isEnding(error: unknown): boolean {
  return (
    hasReason(error, 'Forbidden') && error.causes.some(({ reason }) => reason === 'NamespaceTerminating')
  );
}

/** Runs the writes concurrently; throws the first failure after all have ended, so that none continues unobserved. */
export async function all(writes: Iterable<Promise<unknown>>): Promise<void> {
  const results = await Promise.allSettled(writes);
  for (const result of results) if (result.status === 'rejected') throw result.reason;
}

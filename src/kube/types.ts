import type { ObjectMeta } from 'kubernetes-types/meta/v1';

export type {
  ControllerRevision,
  DaemonSet,
  Deployment,
  DeploymentCondition,
  ReplicaSet,
  StatefulSet,
  StatefulSetCondition,
} from 'kubernetes-types/apps/v1';
export type { Job, JobCondition } from 'kubernetes-types/batch/v1';
export type { Lease } from 'kubernetes-types/coordination/v1';
export type {
  ConfigMap,
  Container,
  ContainerStatus,
  EndpointAddress,
  EndpointPort as EndpointsPort,
  EndpointSubset,
  Endpoints,
  Event,
  Namespace,
  Node,
  NodeCondition,
  NodeSelector,
  NodeSelectorTerm,
  Pod,
  PodAffinityTerm,
  PodCondition,
  PodSpec,
  PodTemplateSpec,
  Probe,
  Secret,
  Service,
  ServiceAccount,
  ServicePort,
  Taint,
  Toleration,
} from 'kubernetes-types/core/v1';
export type { EndpointPort } from 'kubernetes-types/discovery/v1';
export type { LabelSelector, ObjectMeta, OwnerReference } from 'kubernetes-types/meta/v1';
export type { PodDisruptionBudget } from 'kubernetes-types/policy/v1';

import type {
  ControllerRevision,
  DaemonSet,
  Deployment,
  ReplicaSet,
  StatefulSet,
} from 'kubernetes-types/apps/v1';
import type { Job } from 'kubernetes-types/batch/v1';
import type { Lease } from 'kubernetes-types/coordination/v1';
import type {
  ConfigMap,
  Endpoints,
  Event,
  Namespace,
  Node,
  Pod,
  Secret,
  Service,
  ServiceAccount,
} from 'kubernetes-types/core/v1';
import type {
  Endpoint as OldEndpoint,
  EndpointSlice as OldEndpointSlice,
} from 'kubernetes-types/discovery/v1';
import type { PodDisruptionBudget } from 'kubernetes-types/policy/v1';

/** What every object of the API has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  metadata?: ObjectMeta;
}

/** discovery.k8s.io/v1 Endpoint with the hints of KEP-3015 (node hints, Kubernetes 1.33). */
export interface SliceEndpoint extends Omit<OldEndpoint, 'hints'> {
  hints?: { forZones?: { name: string }[]; forNodes?: { name: string }[] };
}

export interface EndpointSlice extends Omit<OldEndpointSlice, 'endpoints'> {
  endpoints: SliceEndpoint[];
}

/** networking.k8s.io/v1 ServiceCIDR (Kubernetes 1.33). */
export interface ServiceCidr extends KubeObject {
  spec?: { cidrs?: string[] };
  status?: { conditions?: { type: string; status: string }[] };
}

/** A kind of the API and where it is served. `T` is its objects' type. */
export interface Resource<T extends KubeObject = KubeObject> {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
  /** Never present: ties `T` to the constant. */
  readonly object?: T;
}

function resource<T extends KubeObject>(
  apiVersion: string,
  plural: string,
  kind: string,
  namespaced = true,
): Resource<T> {
  const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  return { group, version, plural, kind, namespaced };
}

export const RESOURCES = {
  namespaces: resource<Namespace>('v1', 'namespaces', 'Namespace', false),
  nodes: resource<Node>('v1', 'nodes', 'Node', false),
  pods: resource<Pod>('v1', 'pods', 'Pod'),
  services: resource<Service>('v1', 'services', 'Service'),
  endpoints: resource<Endpoints>('v1', 'endpoints', 'Endpoints'),
  configMaps: resource<ConfigMap>('v1', 'configmaps', 'ConfigMap'),
  secrets: resource<Secret>('v1', 'secrets', 'Secret'),
  serviceAccounts: resource<ServiceAccount>('v1', 'serviceaccounts', 'ServiceAccount'),
  events: resource<Event>('v1', 'events', 'Event'),
  deployments: resource<Deployment>('apps/v1', 'deployments', 'Deployment'),
  replicaSets: resource<ReplicaSet>('apps/v1', 'replicasets', 'ReplicaSet'),
  daemonSets: resource<DaemonSet>('apps/v1', 'daemonsets', 'DaemonSet'),
  statefulSets: resource<StatefulSet>('apps/v1', 'statefulsets', 'StatefulSet'),
  controllerRevisions: resource<ControllerRevision>('apps/v1', 'controllerrevisions', 'ControllerRevision'),
  jobs: resource<Job>('batch/v1', 'jobs', 'Job'),
  endpointSlices: resource<EndpointSlice>('discovery.k8s.io/v1', 'endpointslices', 'EndpointSlice'),
  podDisruptionBudgets: resource<PodDisruptionBudget>(
    'policy/v1',
    'poddisruptionbudgets',
    'PodDisruptionBudget',
  ),
  leases: resource<Lease>('coordination.k8s.io/v1', 'leases', 'Lease'),
  serviceCidrs: resource<ServiceCidr>('networking.k8s.io/v1', 'servicecidrs', 'ServiceCIDR', false),
} as const;

/** "v1" or "apps/v1". */
export function apiVersionOf(resource: Resource): string {
  return resource.group === '' ? resource.version : `${resource.group}/${resource.version}`;
}

/** "namespace/name", or "name" for an object without a namespace: the key of caches and queues. */
export function keyOf(object: KubeObject): string {
  const { namespace, name = '' } = object.metadata ?? {};
  return namespace ? `${namespace}/${name}` : name;
}

/** Undoes `keyOf`. */
export function splitKey(key: string): { namespace: string; name: string } {
  const slash = key.indexOf('/');
  return slash < 0
    ? { namespace: '', name: key }
    : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

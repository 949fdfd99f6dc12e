import { setOwnMember } from '../lib/own-member.ts';
import { autoscalerView } from './autoscaler-view.ts';
import { eventView } from './event-view.ts';
import { booleanFields, defineKind, type Kind, pathFields } from './kind.ts';
import { MORE_KINDS } from './more-kinds.ts';
import { type ApiObject, at, equal, isObject, listAt, textAt } from './object.ts';
import { qosClass } from './pod-qos.ts';
import { gatedCondition } from './scheduling-gates.ts';
import { prepareServiceUpdate } from './service-update.ts';
import { prepareClaim, prepareVolume } from './storage-admission.ts';

const workload = { status: true, scale: true, categories: ['all'] } as const;
const eventFields = {
  ...pathFields(
    'involvedObject.kind',
    'involvedObject.namespace',
    'involvedObject.name',
    'involvedObject.uid',
    'involvedObject.apiVersion',
    'involvedObject.resourceVersion',
    'involvedObject.fieldPath',
    'reason',
    'reportingComponent',
    'type',
  ),
  source: (event: ApiObject) => textAt(event, 'source', 'component') || textAt(event, 'reportingComponent'),
};

const CORE_EVENT = defineKind('v1', 'Event', 'events', {
  shortNames: ['ev'],
  fields: eventFields,
  collection: 'events',
  createOnUpdate: true,
  names: 'path',
  anyFinalizers: true,
  propagation: 'Unsupported',
});

const autoscaler = {
  shortNames: ['hpa'],
  categories: ['all'],
  status: true,
  generationFields: [],
};
const AUTOSCALER = defineKind(
  'autoscaling/v2',
  'HorizontalPodAutoscaler',
  'horizontalpodautoscalers',
  autoscaler,
);

/** Every kind that the server serves; discovery lists them in this order within their group. */
export const KINDS: readonly Kind[] = [
  defineKind('v1', 'ConfigMap', 'configmaps', { shortNames: ['cm'] }),
  defineKind('v1', 'Endpoints', 'endpoints', {
    shortNames: ['ep'],
    createOnUpdate: true,
    deprecation: 'v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice',
  }),
  CORE_EVENT,
  defineKind('v1', 'LimitRange', 'limitranges', { shortNames: ['limits'], nameIfAbsent: true }),
  defineKind('v1', 'Namespace', 'namespaces', {
    deleteCollection: false,
    shortNames: ['ns'],
    namespaced: false,
    status: true,
    generationFields: [],
    names: 'label',
    fields: pathFields('status.phase'),
    withoutNamespaceField: true,
    prepareCreate(namespace) {
      namespace['spec'] = { finalizers: ['kubernetes'] };
      namespace['status'] = { phase: 'Active' };
    },
    prepareUpdate(namespace, before) {
      // Only the finalize subresource changes the finalizers of the spec.
      namespace['spec'] = before['spec'];
    },
  }),
  defineKind('v1', 'Node', 'nodes', {
    statusAtCreation: true,
    shortNames: ['no'],
    namespaced: false,
    status: true,
    generationFields: [],
    fields: booleanFields('spec.unschedulable'),
    withoutNamespaceField: true,
  }),
  defineKind('v1', 'PersistentVolume', 'persistentvolumes', {
    answersDeleted: true,
    shortNames: ['pv'],
    namespaced: false,
    status: true,
    generationFields: [],
    prepareCreate: prepareVolume,
  }),
  defineKind('v1', 'PersistentVolumeClaim', 'persistentvolumeclaims', {
    answersDeleted: true,
    shortNames: ['pvc'],
    status: true,
    generationFields: [],
    prepareCreate: prepareClaim,
  }),
  defineKind('v1', 'Pod', 'pods', {
    statusKeeps: ['ownerReferences'],
    answersDeleted: true,
    shortNames: ['po'],
    categories: ['all'],
    status: true,
    fields: {
      ...pathFields(
        'spec.nodeName',
        'spec.restartPolicy',
        'spec.schedulerName',
        'spec.serviceAccountName',
        'status.phase',
        'status.nominatedNodeName',
      ),
      ...booleanFields('spec.hostNetwork'),
      'spec.host': (pod) => textAt(pod, 'spec', 'nodeName'),
      'status.podIP': (pod) =>
        textAt(listAt(pod, 'status', 'podIPs')[0], 'ip') || textAt(pod, 'status', 'podIP'),
      // Upstream accepts the field and always matches it against nothing.
      'status.podIPs': () => '',
    },
    prepareCreate(pod, { now }) {
      pod['status'] = { phase: 'Pending', ...gatedCondition(pod, now), qosClass: qosClass(pod) };
    },
  }),
  defineKind('v1', 'PodTemplate', 'podtemplates', {
    answersDeleted: true,
    generationFields: ['template'],
  }),
  defineKind('v1', 'ReplicationController', 'replicationcontrollers', {
    shortNames: ['rc'],
    ...workload,
    propagation: 'Orphan',
    fields: { 'status.replicas': (controller) => String(at(controller, 'status', 'replicas') ?? 0) },
  }),
  defineKind('v1', 'ResourceQuota', 'resourcequotas', {
    answersDeleted: true,
    shortNames: ['quota'],
    status: true,
    generationFields: [],
  }),
  defineKind('v1', 'Secret', 'secrets', {
    fields: pathFields('type'),
    prepareCreate: mergeStringData,
    prepareUpdate: mergeStringData,
  }),
  defineKind('v1', 'Service', 'services', {
    answersDeleted: true,
    shortNames: ['svc'],
    categories: ['all'],
    status: true,
    generationFields: [],
    names: 'label',
    fields: pathFields('spec.clusterIP', 'spec.type'),
    prepareUpdate: prepareServiceUpdate,
  }),
  defineKind('v1', 'ServiceAccount', 'serviceaccounts', {
    answersDeleted: true,
    shortNames: ['sa'],
  }),
  defineKind('apps/v1', 'ControllerRevision', 'controllerrevisions'),
  defineKind('apps/v1', 'DaemonSet', 'daemonsets', {
    ...workload,
    scale: false,
    shortNames: ['ds'],
    prepareCreate: (set) => noteGeneration(set, 1),
    prepareUpdate(set, before) {
      const changed = !equal(at(set, 'spec', 'template'), at(before, 'spec', 'template'));
      noteGeneration(
        set,
        Number(before.metadata.annotations?.[TEMPLATE_GENERATION] ?? 1) + (changed ? 1 : 0),
      );
    },
  }),
  defineKind('apps/v1', 'Deployment', 'deployments', {
    statusKeeps: ['labels'],
    ...workload,
    shortNames: ['deploy'],
  }),
  defineKind('apps/v1', 'ReplicaSet', 'replicasets', {
    ...workload,
    shortNames: ['rs'],
  }),
  defineKind('apps/v1', 'StatefulSet', 'statefulsets', {
    ...workload,
    shortNames: ['sts'],
    prepareCreate: dropMaxUnavailable,
    prepareUpdate: dropMaxUnavailable,
  }),
  defineKind('batch/v1', 'CronJob', 'cronjobs', { shortNames: ['cj'], categories: ['all'], status: true }),
  defineKind('batch/v1', 'Job', 'jobs', {
    categories: ['all'],
    status: true,
    fields: { 'status.successful': (job) => String(at(job, 'status', 'succeeded') ?? 0) },
    fieldRefusal: (field) => `field label ${JSON.stringify(field)} not supported for Job`,
    prepareCreate: selectOwnPods,
    propagation: 'Orphan',
    propagationWarning:
      'child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning',
  }),
  AUTOSCALER,
  defineKind('autoscaling/v1', 'HorizontalPodAutoscaler', 'horizontalpodautoscalers', {
    ...autoscaler,
    view: autoscalerView(AUTOSCALER),
  }),
  defineKind('coordination.k8s.io/v1', 'Lease', 'leases', {
    createOnUpdate: true,
    needsVersion: true,
    anyFinalizers: true,
  }),
  defineKind('discovery.k8s.io/v1', 'EndpointSlice', 'endpointslices', {
    generationFields: ['endpoints', 'ports', 'addressType'],
    prepareCreate: dropTopology,
    prepareUpdate: dropTopology,
  }),
  defineKind('events.k8s.io/v1', 'Event', 'events', {
    shortNames: ['ev'],
    collection: 'events',
    fields: {
      ...pathFields('reason', 'type'),
      reportingController: (event) => textAt(event, 'reportingComponent'),
      ...Object.fromEntries(
        ['kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion', 'fieldPath'].map((field) => [
          `regarding.${field}`,
          (event: ApiObject) => textAt(event, 'involvedObject', field),
        ]),
      ),
    },
    createOnUpdate: true,
    view: eventView(CORE_EVENT),
  }),
  defineKind('networking.k8s.io/v1', 'IPAddress', 'ipaddresses', {
    shortNames: ['ip'],
    namespaced: false,
    names: 'ip',
  }),
  defineKind('networking.k8s.io/v1', 'Ingress', 'ingresses', {
    shortNames: ['ing'],
    status: true,
  }),
  defineKind('networking.k8s.io/v1', 'IngressClass', 'ingressclasses', {
    namespaced: false,
    generationFields: ['spec'],
  }),
  defineKind('networking.k8s.io/v1', 'NetworkPolicy', 'networkpolicies', {
    shortNames: ['netpol'],
    generationFields: ['spec'],
  }),
  defineKind('networking.k8s.io/v1', 'ServiceCIDR', 'servicecidrs', {
    namespaced: false,
    status: true,
    generationFields: [],
  }),
  defineKind('policy/v1', 'PodDisruptionBudget', 'poddisruptionbudgets', {
    shortNames: ['pdb'],
    names: 'path',
    anyFinalizers: true,
    status: true,
    needsVersion: true,
  }),
  defineKind('rbac.authorization.k8s.io/v1', 'ClusterRole', 'clusterroles', {
    namespaced: false,
    names: 'path',
  }),
  defineKind('rbac.authorization.k8s.io/v1', 'ClusterRoleBinding', 'clusterrolebindings', {
    namespaced: false,
    names: 'path',
  }),
  defineKind('rbac.authorization.k8s.io/v1', 'Role', 'roles', { names: 'path' }),
  defineKind('rbac.authorization.k8s.io/v1', 'RoleBinding', 'rolebindings', { names: 'path' }),
  defineKind('scheduling.k8s.io/v1', 'PriorityClass', 'priorityclasses', {
    shortNames: ['pc'],
    namespaced: false,
    generationFields: ['value', 'preemptionPolicy'],
  }),
  defineKind('storage.k8s.io/v1', 'StorageClass', 'storageclasses', {
    answersDeleted: true,
    shortNames: ['sc'],
    namespaced: false,
  }),
  ...MORE_KINDS,
];

const TEMPLATE_GENERATION = 'deprecated.daemonset.template.generation';

/** Records the generation of a DaemonSet's template in the field that apps/v1 keeps from older versions. */
function noteGeneration(set: ApiObject, generation: number): void {
  set.metadata.annotations = { ...set.metadata.annotations, [TEMPLATE_GENERATION]: String(generation) };
}

/** Makes a Job without a selector select its pods by its UID (upstream's generateSelector). */
function selectOwnPods(job: ApiObject): void {
  const spec = job['spec'];
  if (!isObject(spec) || spec['manualSelector'] === true) return;
  const template = isObject(spec['template']) ? spec['template'] : {};
  const metadata = isObject(template['metadata']) ? template['metadata'] : {};
  const uid = job.metadata.uid ?? '';
  const name = job.metadata.name ?? '';
  const own = { 'controller-uid': uid, 'batch.kubernetes.io/controller-uid': uid };
  const labels = isObject(metadata['labels']) ? metadata['labels'] : {};
  const given = equal(job.metadata.labels, metadata['labels']) || job.metadata.labels === undefined;
  metadata['labels'] = { ...labels, 'job-name': name, 'batch.kubernetes.io/job-name': name, ...own };
  spec['template'] = { ...template, metadata };
  // A Job without labels takes the labels of its pods.
  if (given) job.metadata.labels = { ...(metadata['labels'] as Record<string, string>) };
  const selector = isObject(spec['selector']) ? spec['selector'] : {};
  const matched = isObject(selector['matchLabels']) ? selector['matchLabels'] : {};
  spec['selector'] = { ...selector, matchLabels: { ...matched, 'batch.kubernetes.io/controller-uid': uid } };
}

/** Drops the field of discovery/v1beta1, which clients must not set. */
function dropTopology(slice: ApiObject): void {
  for (const endpoint of listAt(slice, 'endpoints')) delete endpoint['deprecatedTopology'];
}

/** Upstream's MaxUnavailableStatefulSet is off by default: the field is dropped. */
function dropMaxUnavailable(set: ApiObject): void {
  const rolling = at(set, 'spec', 'updateStrategy', 'rollingUpdate');
  if (isObject(rolling)) delete rolling['maxUnavailable'];
}

/** stringData is write-only: merges it into data, base64-encoded. */
function mergeStringData(secret: ApiObject): void {
  const plain = secret['stringData'];
  if (!isObject(plain)) return;
  const data: Record<string, unknown> = isObject(secret['data']) ? { ...secret['data'] } : {};
  for (const [key, value] of Object.entries(plain))
    setOwnMember(data, key, Buffer.from(String(value)).toString('base64'));
  secret['data'] = data;
  delete secret['stringData'];
}

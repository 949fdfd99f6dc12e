import { validateDefinition } from '../custom-resources/validate-definition.ts';
import type { Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import { validateRole, validateRoleBinding } from './access.ts';
import { validateAutoscaler } from './autoscalers.ts';
import { validateCertificateRequest } from './certificate-requests.ts';
import { validateEndpointSlice, validateEndpoints } from './endpoints.ts';
import { validateEvent } from './events.ts';
import { validateFlowSchema, validatePriorityLevel } from './flow-control.ts';
import { validateIngress, validateIngressClass } from './ingresses.ts';
import { validateCronJob, validateJob } from './jobs.ts';
import { validateIpAddress, validateNetworkPolicy, validateServiceCidr } from './network.ts';
import {
  validateConfigMap,
  validateDisruptionBudget,
  validateLease,
  validateNode,
  validatePriorityClass,
  validateRuntimeClass,
  validateSecret,
} from './plain.ts';
import { validatePod } from './pod.ts';
import {
  validateMutatingBinding,
  validateMutatingPolicy,
  validateValidatingBinding,
  validateValidatingPolicy,
} from './policies.ts';
import { validateLimitRange, validateResourceQuota } from './quotas.ts';
import { validateService } from './service.ts';
import {
  validateClaim,
  validateCsiCapacity,
  validateCsiDriver,
  validateCsiNode,
  validatePersistentVolume,
  validateStorageClass,
  validateVolumeAttachment,
  validateVolumeAttributesClass,
} from './storage.ts';
import { validateWebhooks } from './webhooks.ts';
import {
  validateControllerRevision,
  validateDaemonSet,
  validateDeployment,
  validatePodTemplate,
  validateReplicaSet,
  validateReplicationController,
  validateStatefulSet,
} from './workloads.ts';

/**
 * Validates a new object or, with `before`, an update by the rules of its kind. `requested`: the kind of the client's
 * request, for kinds whose versions have different rules.
 */
type Validator = (object: ApiObject, before: ApiObject | null, requested: Kind) => FieldError[];

/** By the collection of the kind. */
const VALIDATORS: Readonly<Record<string, Validator>> = {
  'customresourcedefinitions.apiextensions.k8s.io': validateDefinition,
  configmaps: validateConfigMap,
  endpoints: validateEndpoints,
  events: validateEvent,
  limitranges: validateLimitRange,
  nodes: validateNode,
  persistentvolumeclaims: validateClaim,
  persistentvolumes: validatePersistentVolume,
  pods: validatePod,
  podtemplates: validatePodTemplate,
  replicationcontrollers: validateReplicationController,
  resourcequotas: validateResourceQuota,
  secrets: validateSecret,
  services: validateService,
  'controllerrevisions.apps': validateControllerRevision,
  'daemonsets.apps': validateDaemonSet,
  'deployments.apps': validateDeployment,
  'replicasets.apps': validateReplicaSet,
  'statefulsets.apps': validateStatefulSet,
  'cronjobs.batch': validateCronJob,
  'jobs.batch': validateJob,
  'horizontalpodautoscalers.autoscaling': validateAutoscaler,
  'leases.coordination.k8s.io': validateLease,
  'endpointslices.discovery.k8s.io': validateEndpointSlice,
  'ipaddresses.networking.k8s.io': validateIpAddress,
  'ingresses.networking.k8s.io': validateIngress,
  'ingressclasses.networking.k8s.io': validateIngressClass,
  'networkpolicies.networking.k8s.io': validateNetworkPolicy,
  'servicecidrs.networking.k8s.io': validateServiceCidr,
  'poddisruptionbudgets.policy': validateDisruptionBudget,
  'clusterroles.rbac.authorization.k8s.io': validateRole,
  'roles.rbac.authorization.k8s.io': validateRole,
  'clusterrolebindings.rbac.authorization.k8s.io': validateRoleBinding,
  'rolebindings.rbac.authorization.k8s.io': validateRoleBinding,
  'priorityclasses.scheduling.k8s.io': validatePriorityClass,
  'storageclasses.storage.k8s.io': validateStorageClass,
  'csidrivers.storage.k8s.io': validateCsiDriver,
  'csinodes.storage.k8s.io': validateCsiNode,
  'csistoragecapacities.storage.k8s.io': validateCsiCapacity,
  'volumeattachments.storage.k8s.io': validateVolumeAttachment,
  'volumeattributesclasses.storage.k8s.io': validateVolumeAttributesClass,
  'flowschemas.flowcontrol.apiserver.k8s.io': validateFlowSchema,
  'prioritylevelconfigurations.flowcontrol.apiserver.k8s.io': validatePriorityLevel,
  'runtimeclasses.node.k8s.io': validateRuntimeClass,
  'validatingwebhookconfigurations.admissionregistration.k8s.io': validateWebhooks,
  'mutatingwebhookconfigurations.admissionregistration.k8s.io': validateWebhooks,
  'certificatesigningrequests.certificates.k8s.io': validateCertificateRequest,
  'validatingadmissionpolicies.admissionregistration.k8s.io': validateValidatingPolicy,
  'validatingadmissionpolicybindings.admissionregistration.k8s.io': validateValidatingBinding,
  'mutatingadmissionpolicies.admissionregistration.k8s.io': validateMutatingPolicy,
  'mutatingadmissionpolicybindings.admissionregistration.k8s.io': validateMutatingBinding,
};

/** Returns the errors of an object; none for kinds without their own rules. */
export function validateObject(
  kind: Kind,
  object: ApiObject,
  before: ApiObject | null,
  requested: Kind = kind,
): FieldError[] {
  return VALIDATORS[kind.collection]?.(object, before, requested) ?? [];
}

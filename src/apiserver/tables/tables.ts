import type { ApiObject } from '../object.ts';
import type { TableService } from '../schema-service.ts';
import * as cluster from './cluster-objects.ts';
import * as extensions from './extension-objects.ts';
import { podPrinter } from './pods.ts';
import type { Printer } from './printer.ts';
import * as services from './services.ts';
import * as workloads from './workloads.ts';

/** By "GROUP/KIND". The columns equal upstream's, which users know and scripts parse. */
const PRINTERS: Readonly<Record<string, Printer>> = {
  '/ConfigMap': cluster.configMapPrinter,
  '/Endpoints': services.endpointsPrinter,
  '/Event': cluster.eventPrinter,
  '/Namespace': cluster.namespacePrinter,
  '/Node': cluster.nodePrinter,
  '/PersistentVolume': cluster.volumePrinter,
  '/PersistentVolumeClaim': cluster.volumeClaimPrinter,
  '/Pod': podPrinter,
  '/PodTemplate': workloads.podTemplatePrinter,
  '/ReplicationController': workloads.replicationControllerPrinter,
  '/ResourceQuota': cluster.resourceQuotaPrinter,
  '/Secret': cluster.secretPrinter,
  '/Service': services.servicePrinter,
  '/ServiceAccount': cluster.serviceAccountPrinter,
  'apps/ControllerRevision': workloads.controllerRevisionPrinter,
  'apps/DaemonSet': workloads.daemonSetPrinter,
  'apps/Deployment': workloads.deploymentPrinter,
  'apps/ReplicaSet': workloads.replicaSetPrinter,
  'apps/StatefulSet': workloads.statefulSetPrinter,
  'autoscaling/HorizontalPodAutoscaler': workloads.autoscalerPrinter,
  'batch/CronJob': workloads.cronJobPrinter,
  'batch/Job': workloads.jobPrinter,
  'coordination.k8s.io/Lease': cluster.leasePrinter,
  'discovery.k8s.io/EndpointSlice': services.endpointSlicePrinter,
  'events.k8s.io/Event': cluster.eventPrinter,
  'networking.k8s.io/IPAddress': services.ipAddressPrinter,
  'networking.k8s.io/Ingress': services.ingressPrinter,
  'networking.k8s.io/IngressClass': services.ingressClassPrinter,
  'networking.k8s.io/NetworkPolicy': services.networkPolicyPrinter,
  'networking.k8s.io/ServiceCIDR': services.serviceCidrPrinter,
  'policy/PodDisruptionBudget': workloads.disruptionBudgetPrinter,
  'rbac.authorization.k8s.io/ClusterRoleBinding': cluster.roleBindingPrinter,
  'rbac.authorization.k8s.io/RoleBinding': cluster.roleBindingPrinter,
  'scheduling.k8s.io/PriorityClass': cluster.priorityClassPrinter,
  'storage.k8s.io/StorageClass': cluster.storageClassPrinter,
  'admissionregistration.k8s.io/MutatingAdmissionPolicy': extensions.mutatingPolicyPrinter,
  'admissionregistration.k8s.io/MutatingAdmissionPolicyBinding': extensions.policyBindingPrinter,
  'admissionregistration.k8s.io/MutatingWebhookConfiguration': extensions.webhookConfigurationPrinter,
  'admissionregistration.k8s.io/ValidatingAdmissionPolicy': extensions.validatingPolicyPrinter,
  'admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding': extensions.policyBindingPrinter,
  'admissionregistration.k8s.io/ValidatingWebhookConfiguration': extensions.webhookConfigurationPrinter,
  'certificates.k8s.io/CertificateSigningRequest': extensions.certificateRequestPrinter,
  'flowcontrol.apiserver.k8s.io/FlowSchema': extensions.flowSchemaPrinter,
  'flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration': extensions.priorityLevelPrinter,
  'node.k8s.io/RuntimeClass': extensions.runtimeClassPrinter,
  'resource.k8s.io/DeviceClass': extensions.agePrinter,
  'resource.k8s.io/ResourceClaim': extensions.resourceClaimPrinter,
  'resource.k8s.io/ResourceClaimTemplate': extensions.agePrinter,
  'resource.k8s.io/ResourceSlice': extensions.resourceSlicePrinter,
  'storage.k8s.io/CSIDriver': extensions.csiDriverPrinter,
  'storage.k8s.io/CSINode': extensions.csiNodePrinter,
  'storage.k8s.io/VolumeAttachment': extensions.volumeAttachmentPrinter,
  'storage.k8s.io/VolumeAttributesClass': extensions.volumeAttributesClassPrinter,
};

/** Renders objects as rows of `kubectl get`; kinds without their own columns show name and creation. */
export function createTableService(): TableService {
  const printer = (group: string, kind: string) => PRINTERS[`${group}/${kind}`] ?? cluster.plainPrinter;
  return {
    columns: (group, kind) => printer(group, kind).columns,
    cells: (group, kind, object, now) => printer(group, kind).cells(object as ApiObject, now),
  };
}

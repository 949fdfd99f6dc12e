import { API_SERVICE_KIND } from './aggregation/api-service.ts';
import { DEFINITION_KIND } from './custom-resources/definition-kind.ts';
import { defineKind, type Kind, pathFields } from './kind.ts';
import { protectAttributes } from './storage-admission.ts';

const cluster = { namespaced: false, needsVersion: true } as const;
const extension = {
  namespaced: false,
  needsVersion: true,
  anyFinalizers: true,
  categories: ['api-extensions'],
} as const;
const NO_DRIVER = 'volumes are local and this cluster runs no CSI driver: this object has no effect';
/** Those of src/runtime/runtime-class.ts. */
const RUNTIME_HANDLERS = new Set(['crun', 'runc']);
const NO_RUNTIME =
  'nodes have one runtime, with the handlers crun and runc: pods of this class stay Pending with the reason FailedCreatePodSandBox';
const NO_DEVICES =
  'this cluster does not allocate devices: this object has no effect, and of its fields only the types were checked';

/** The kinds of upstream's other groups, as its discovery lists them. */
export const MORE_KINDS: readonly Kind[] = [
  DEFINITION_KIND,
  API_SERVICE_KIND,
  defineKind('node.k8s.io/v1', 'RuntimeClass', 'runtimeclasses', {
    ...cluster,
    anyFinalizers: true,
    notice: ({ handler }) => (RUNTIME_HANDLERS.has(String(handler)) ? null : NO_RUNTIME),
  }),
  defineKind('storage.k8s.io/v1', 'CSIDriver', 'csidrivers', {
    ...cluster,
    answersDeleted: true,
    notice: NO_DRIVER,
    generationFields: ['spec'],
    withoutFirstGeneration: true,
  }),
  defineKind('storage.k8s.io/v1', 'CSINode', 'csinodes', {
    ...cluster,
    answersDeleted: true,
    notice: NO_DRIVER,
  }),
  defineKind('storage.k8s.io/v1', 'CSIStorageCapacity', 'csistoragecapacities', {
    needsVersion: true,
    notice: NO_DRIVER,
  }),
  defineKind('storage.k8s.io/v1', 'VolumeAttachment', 'volumeattachments', {
    ...cluster,
    answersDeleted: true,
    status: true,
    generationFields: [],
    notice: NO_DRIVER,
  }),
  defineKind('storage.k8s.io/v1', 'VolumeAttributesClass', 'volumeattributesclasses', {
    ...cluster,
    shortNames: ['vac'],
    needsVersion: false,
    prepareCreate: protectAttributes,
    notice: NO_DRIVER,
  }),
  defineKind('resource.k8s.io/v1', 'DeviceClass', 'deviceclasses', {
    ...cluster,
    generationFields: ['spec'],
    notice: NO_DEVICES,
  }),
  defineKind('resource.k8s.io/v1', 'ResourceClaim', 'resourceclaims', {
    status: true,
    generationFields: [],
    notice: NO_DEVICES,
  }),
  defineKind('resource.k8s.io/v1', 'ResourceClaimTemplate', 'resourceclaimtemplates', { notice: NO_DEVICES }),
  defineKind('resource.k8s.io/v1', 'ResourceSlice', 'resourceslices', {
    ...cluster,
    generationFields: ['spec'],
    fields: pathFields('spec.nodeName', 'spec.driver'),
    withoutNamespaceField: true,
    fieldRefusal: (field) => `field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: ${field}`,
    notice: NO_DEVICES,
  }),
  defineKind('flowcontrol.apiserver.k8s.io/v1', 'FlowSchema', 'flowschemas', {
    ...cluster,
    needsVersion: false,
    status: true,
    notice: 'this API server does not prioritize requests: this object has no effect',
  }),
  defineKind('flowcontrol.apiserver.k8s.io/v1', 'PriorityLevelConfiguration', 'prioritylevelconfigurations', {
    ...cluster,
    needsVersion: false,
    status: true,
    notice: 'this API server does not prioritize requests: this object has no effect',
  }),
  defineKind('certificates.k8s.io/v1', 'CertificateSigningRequest', 'certificatesigningrequests', {
    ...cluster,
    needsVersion: false,
    shortNames: ['csr'],
    names: 'path',
    status: true,
    generationFields: [],
    fields: pathFields('spec.signerName'),
    withoutNamespaceField: true,
  }),
  ...['Validating', 'Mutating'].flatMap((what) => [
    defineKind(
      'admissionregistration.k8s.io/v1',
      `${what}WebhookConfiguration`,
      `${what.toLowerCase()}webhookconfigurations`,
      {
        ...extension,
        generationFields: ['webhooks'],
      },
    ),
    defineKind(
      'admissionregistration.k8s.io/v1',
      `${what}AdmissionPolicy`,
      `${what.toLowerCase()}admissionpolicies`,
      {
        ...extension,
        status: what === 'Validating',
        generationFields: ['spec'],
      },
    ),
    defineKind(
      'admissionregistration.k8s.io/v1',
      `${what}AdmissionPolicyBinding`,
      `${what.toLowerCase()}admissionpolicybindings`,
      {
        ...extension,
        generationFields: ['spec'],
      },
    ),
  ]),
];

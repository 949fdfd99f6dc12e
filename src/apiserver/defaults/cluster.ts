import { isObject, listAt } from '../object.ts';
import type { TypeDefaults } from '../schema/canonical-form.ts';
import { objectIn, setAbsent } from './core.ts';

const RBAC_GROUP = 'rbac.authorization.k8s.io';

const webhook = { failurePolicy: 'Fail', matchPolicy: 'Equivalent', timeoutSeconds: 10 };
const selectors = { namespaceSelector: {}, objectSelector: {} };
const httpsPort: TypeDefaults = (service) => setAbsent(service, { port: 443 });
const roleBinding: TypeDefaults = (binding) => {
  objectIn(binding, 'roleRef')['apiGroup'] ||= RBAC_GROUP;
};
const exactCount: TypeDefaults = (request) => {
  request['allocationMode'] ||= 'ExactCount';
  if (request['allocationMode'] === 'ExactCount') request['count'] ||= 1;
};

/** Defaults of the other groups, as upstream's SetDefaults functions give them. */
export const CLUSTER_DEFAULTS: Readonly<Record<string, TypeDefaults>> = {
  'networking.v1.NetworkPolicyPort': (port) => setAbsent(port, { protocol: 'TCP' }),
  'networking.v1.NetworkPolicy'(policy) {
    const spec = objectIn(policy, 'spec');
    if (listAt(spec, 'policyTypes').length > 0) return;
    spec['policyTypes'] = listAt(spec, 'egress').length > 0 ? ['Ingress', 'Egress'] : ['Ingress'];
  },
  'networking.v1.IngressClassParametersReference': (reference) => setAbsent(reference, { scope: 'Cluster' }),
  'discovery.v1.EndpointPort': (port) => setAbsent(port, { name: '', protocol: 'TCP' }),
  'rbac.v1.ClusterRoleBinding': roleBinding,
  'rbac.v1.RoleBinding': roleBinding,
  'rbac.v1.Subject'(subject) {
    if (subject['kind'] === 'User' || subject['kind'] === 'Group') subject['apiGroup'] ||= RBAC_GROUP;
  },
  'storage.v1.StorageClass': (storageClass) =>
    setAbsent(storageClass, { reclaimPolicy: 'Delete', volumeBindingMode: 'Immediate' }),
  'storage.v1.CSIDriverSpec'(spec) {
    setAbsent(spec, {
      attachRequired: true,
      podInfoOnMount: false,
      storageCapacity: false,
      fsGroupPolicy: 'ReadWriteOnceWithFSType',
      requiresRepublish: false,
      seLinuxMount: false,
    });
    if (listAt(spec, 'volumeLifecycleModes').length === 0) spec['volumeLifecycleModes'] = ['Persistent'];
  },
  'scheduling.v1.PriorityClass': (priority) =>
    setAbsent(priority, { preemptionPolicy: 'PreemptLowerPriority' }),
  'admissionregistration.v1.ValidatingWebhook': (hook) => setAbsent(hook, { ...webhook, ...selectors }),
  'admissionregistration.v1.MutatingWebhook': (hook) =>
    setAbsent(hook, { ...webhook, ...selectors, reinvocationPolicy: 'Never' }),
  'admissionregistration.v1.RuleWithOperations': (rule) => setAbsent(rule, { scope: '*' }),
  'admissionregistration.v1.NamedRuleWithOperations': (rule) => setAbsent(rule, { scope: '*' }),
  'admissionregistration.v1.ServiceReference': httpsPort,
  'admissionregistration.v1.ValidatingAdmissionPolicySpec': (spec) =>
    setAbsent(spec, { failurePolicy: 'Fail' }),
  'admissionregistration.v1.MutatingAdmissionPolicySpec': (spec) =>
    setAbsent(spec, { failurePolicy: 'Fail' }),
  'admissionregistration.v1.MatchResources': (match) =>
    setAbsent(match, { matchPolicy: 'Equivalent', ...selectors }),
  'flowcontrol.v1.FlowSchemaSpec': (spec) => {
    spec['matchingPrecedence'] ||= 1000;
  },
  'flowcontrol.v1.ExemptPriorityLevelConfiguration': (level) =>
    setAbsent(level, { nominalConcurrencyShares: 0, lendablePercent: 0 }),
  'flowcontrol.v1.LimitedPriorityLevelConfiguration': (level) =>
    setAbsent(level, { nominalConcurrencyShares: 30, lendablePercent: 0 }),
  'flowcontrol.v1.QueuingConfiguration'(queuing) {
    queuing['handSize'] ||= 8;
    queuing['queues'] ||= 64;
    queuing['queueLengthLimit'] ||= 50;
  },
  'resource.v1.ExactDeviceRequest': exactCount,
  'resource.v1.DeviceSubRequest': exactCount,
  'apiextensions.v1.ServiceReference': httpsPort,
  'apiextensions.v1.CustomResourceDefinition'(definition) {
    const spec = objectIn(definition, 'spec');
    const names = objectIn(spec, 'names');
    const kind = String(names['kind'] ?? '');
    names['singular'] ||= kind.toLowerCase();
    if (kind !== '') names['listKind'] ||= `${kind}List`;
    setAbsent(spec, { conversion: { strategy: 'None' } });
    const status = objectIn(definition, 'status');
    if (listAt(status, 'storedVersions').length === 0) {
      const stored = listAt(spec, 'versions').find((version) => version['storage'] === true);
      if (isObject(stored)) status['storedVersions'] = [stored['name']];
    }
  },
  'apiregistration.v1.ServiceReference': httpsPort,
};

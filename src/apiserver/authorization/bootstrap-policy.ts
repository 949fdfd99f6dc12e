import { egressGatewayDefinition } from '../../kube/egress-gateway.ts';
import {
  ANNOUNCEMENT_NAMESPACE,
  ANNOUNCERS_GROUP,
  EARLIER_ANNOUNCEMENT_NAMESPACE,
} from '../../kube/load-balancer.ts';
import type { ApiObject, JsonObject } from '../object.ts';
import { equal, listAt } from '../object.ts';
import type { BootstrapBinding, BootstrapRole } from './bootstrap-role.ts';
import { CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES } from './generated/bootstrap-policy.ts';
import { type PolicyRule, ruleObject, rulesOf, uncovered } from './policy-rule.ts';
import { COLLECTIONS, RBAC_GROUP } from './rbac.ts';

/**
 * Rights of a node's agent in addition to those of a kubelet: it also does the work of kube-proxy, CNI plugin, DNS and
 * announcer.
 */
const AGENT_ROLE: BootstrapRole = {
  name: 'fairlead:node-agent',
  rules: [
    'get,list,watch "" endpoints,namespaces,nodes,pods,services',
    'list,watch discovery.k8s.io endpointslices',
    'get,list,watch networking.k8s.io ingressclasses,ingresses,networkpolicies,servicecidrs',
    'get,list,watch policy.networking.k8s.io adminnetworkpolicies,baselineadminnetworkpolicies,clusternetworkpolicies',
    'get,list,watch apiextensions.k8s.io customresourcedefinitions',
    'get,list,watch fairlead.dev egressgateways',
    'patch fairlead.dev egressgateways/status',
    'get,list,watch gateway.networking.k8s.io backendtlspolicies,gatewayclasses,gateways,grpcroutes,httproutes,listenersets,referencegrants,tcproutes,tlsroutes,udproutes',
  ],
};
/** Leases determine the node that announces a load-balancer address. */
const ANNOUNCER_ROLE: BootstrapRole = {
  name: 'fairlead:load-balancer-announcer',
  namespace: ANNOUNCEMENT_NAMESPACE,
  rules: ['create,delete,get,list,patch,update,watch coordination.k8s.io leases'],
};
/** Agents of version 0.1 had the Leases elsewhere: whether any still announce by those. */
const EARLIER_ANNOUNCER_ROLE: BootstrapRole = {
  name: ANNOUNCER_ROLE.name,
  namespace: EARLIER_ANNOUNCEMENT_NAMESPACE,
  rules: ['get,list,watch coordination.k8s.io leases'],
};
const ANNOUNCER_ROLES = [ANNOUNCER_ROLE, EARLIER_ANNOUNCER_ROLE];
const ANNOUNCER_BINDINGS = ANNOUNCER_ROLES.map(
  ({ name, namespace = '' }): BootstrapBinding => ({
    ...{ name, namespace, role: `Role/${name}` },
    subjects: [`Group/${ANNOUNCERS_GROUP}`],
  }),
);

const AGENT_BINDING: BootstrapBinding = {
  name: 'fairlead:node-agent',
  role: 'ClusterRole/fairlead:node-agent',
  subjects: ['Group/system:nodes'],
};

/** Returns the roles and bindings of agents, and the namespace of their Leases: only the embedded API server has them by default. */
export function agentAccessObjects(): readonly ApiObject[] {
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: ANNOUNCEMENT_NAMESPACE } },
    egressGatewayDefinition(),
    roleObject('ClusterRole', AGENT_ROLE),
    bindingObject('ClusterRoleBinding', AGENT_BINDING),
    ...ANNOUNCER_ROLES.map((role) => roleObject('Role', role)),
    ...ANNOUNCER_BINDINGS.map((binding) => bindingObject('RoleBinding', binding)),
  ];
}

const AUTO_UPDATE = 'rbac.authorization.kubernetes.io/autoupdate';
const BOOTSTRAP_LABELS = { 'kubernetes.io/bootstrapping': 'rbac-defaults' };

const list = (text: string | undefined): string[] =>
  (text ?? '').split(',').map((word) => (word === '""' ? '' : word));

/** Parses a rule of the generated file. */
export function parseRule(text: string): PolicyRule {
  const [verbs, second, resources, names] = text.split(' ');
  const none = { apiGroups: [], resources: [], resourceNames: [], nonResourceURLs: [] };
  if (resources === undefined) return { ...none, verbs: list(verbs), nonResourceURLs: list(second) };
  return {
    ...none,
    verbs: list(verbs),
    apiGroups: list(second),
    resources: list(resources),
    resourceNames: names === undefined ? [] : list(names),
  };
}

function roleObject(kind: string, role: BootstrapRole): ApiObject {
  return {
    ...objectHead(kind, role),
    rules: role.rules.map((rule) => ruleObject(parseRule(rule))),
    ...(role.aggregates
      ? { aggregationRule: { clusterRoleSelectors: role.aggregates.map((matchLabels) => ({ matchLabels })) } }
      : {}),
  };
}

function bindingObject(kind: string, binding: BootstrapBinding): ApiObject {
  const [roleKind = '', ...roleName] = binding.role.split('/');
  return {
    ...objectHead(kind, binding),
    subjects: binding.subjects.map(subjectObject),
    roleRef: { apiGroup: RBAC_GROUP, kind: roleKind, name: roleName.join('/') },
  };
}

function subjectObject(text: string): JsonObject {
  const [kind = '', ...rest] = text.split('/');
  if (kind === 'ServiceAccount') return { kind, name: rest[1] ?? '', namespace: rest[0] ?? '' };
  return { apiGroup: RBAC_GROUP, kind, name: rest.join('/') };
}

function objectHead(kind: string, source: BootstrapRole | BootstrapBinding) {
  return {
    apiVersion: `${RBAC_GROUP}/v1`,
    kind,
    metadata: {
      name: source.name,
      ...(source.namespace === undefined ? {} : { namespace: source.namespace }),
      annotations: { [AUTO_UPDATE]: 'true' },
      labels: { ...BOOTSTRAP_LABELS, ...source.labels },
    },
  };
}

/** Reads and writes stored policy objects. */
export interface PolicyWriter {
  get(collection: string, key: string): ApiObject | undefined;
  create(collection: string, object: ApiObject): void;
  update(collection: string, object: ApiObject): void;
  delete(collection: string, key: string): void;
}

/**
 * Restores the default roles and bindings to at least their default state, as kube-apiserver does when it starts:
 * missing rules and subjects are added, others are kept, and an object with the annotation autoupdate "false" is not
 * changed.
 */
export function reconcileBootstrapPolicy(policy: PolicyWriter): void {
  const roles = [
    ...[...CLUSTER_ROLES, AGENT_ROLE].map((role) => ['ClusterRole', COLLECTIONS.clusterRoles, role] as const),
    ...[...ROLES, ...ANNOUNCER_ROLES].map((role) => ['Role', COLLECTIONS.roles, role] as const),
  ];
  for (const [kind, collection, role] of roles) {
    reconcile(policy, collection, roleObject(kind, role), mergedRole);
  }
  const bindings = [
    ...[...CLUSTER_ROLE_BINDINGS, AGENT_BINDING].map(
      (binding) => ['ClusterRoleBinding', COLLECTIONS.clusterRoleBindings, binding] as const,
    ),
    ...[...ROLE_BINDINGS, ...ANNOUNCER_BINDINGS].map(
      (binding) => ['RoleBinding', COLLECTIONS.roleBindings, binding] as const,
    ),
  ];
  for (const [kind, collection, binding] of bindings) {
    reconcile(policy, collection, bindingObject(kind, binding), mergedBinding);
  }
}

function reconcile(
  policy: PolicyWriter,
  collection: string,
  wanted: ApiObject,
  merged: (existing: ApiObject, wanted: ApiObject) => ApiObject | null,
): void {
  const key = `${wanted.metadata.namespace ?? ''}/${wanted.metadata.name}`;
  const existing = policy.get(collection, key);
  if (!existing) {
    policy.create(collection, wanted);
    return;
  }
  if (existing.metadata.annotations?.[AUTO_UPDATE] === 'false') return;
  const next = merged(existing, wanted);
  if (next === null) {
    // The role of a binding is immutable: the binding is recreated.
    policy.delete(collection, key);
    policy.create(collection, wanted);
  } else if (!equal(next, existing)) policy.update(collection, next);
}

const withMetadata = (existing: ApiObject, wanted: ApiObject): ApiObject => ({
  ...existing,
  metadata: {
    ...existing.metadata,
    labels: { ...wanted.metadata.labels, ...existing.metadata.labels },
    annotations: { ...wanted.metadata.annotations, ...existing.metadata.annotations },
  },
});

function mergedRole(existing: ApiObject, wanted: ApiObject): ApiObject {
  const next = withMetadata(existing, wanted);
  if (wanted['aggregationRule']) {
    const selectors = [...listAt(existing, 'aggregationRule', 'clusterRoleSelectors')];
    for (const selector of listAt(wanted, 'aggregationRule', 'clusterRoleSelectors')) {
      if (!selectors.some((one) => equal(one, selector))) selectors.push(selector);
    }
    return { ...next, aggregationRule: { clusterRoleSelectors: selectors } };
  }
  const missing = uncovered(rulesOf(existing), rulesOf(wanted));
  if (missing.length === 0) return next;
  return { ...next, rules: [...listAt(existing, 'rules'), ...missing.map(ruleObject)] };
}

function mergedBinding(existing: ApiObject, wanted: ApiObject): ApiObject | null {
  if (!equal(existing['roleRef'], wanted['roleRef'])) return null;
  const subjects = listAt(existing, 'subjects');
  const missing = listAt(wanted, 'subjects').filter(
    (subject) =>
      !subjects.some((one) => ['kind', 'name', 'namespace'].every((field) => one[field] === subject[field])),
  );
  return { ...withMetadata(existing, wanted), subjects: [...subjects, ...missing] };
}

import type { AdmissionAttributes, AdmissionPlugin } from '../admission/plugin.ts';
import type { User } from '../authentication/user.ts';
import { type ApiObject, equal, isObject, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import { StatusError } from '../status-error.ts';
import type { Authorizer } from './authorizer.ts';
import { MASTERS } from './masters.ts';
import { compactRules, type PolicyRule, rulesOf, ruleText, uncovered } from './policy-rule.ts';
import { RBAC_GROUP, type Rbac, resolveRole } from './rbac.ts';

/** All rights: the upper bound of a role with an aggregation rule. */
const FULL: readonly PolicyRule[] = [
  { verbs: ['*'], apiGroups: ['*'], resources: ['*'], resourceNames: [], nonResourceURLs: [] },
  { verbs: ['*'], apiGroups: [], resources: [], resourceNames: [], nonResourceURLs: ['*'] },
];

/**
 * Refuses roles that contain, and bindings that grant, more rights than the writer has, unless the writer has the verb
 * `escalate` (roles) or `bind` (bindings) on them. Source: upstream's pkg/registry/rbac/{role,rolebinding}/policybased.
 */
export function createEscalationCheck(view: ObjectView, rbac: Rbac, authorizer: Authorizer): AdmissionPlugin {
  const confirm = (attributes: AdmissionAttributes, wanted: readonly PolicyRule[], namespace: string) => {
    const { rules, errors } = rbac.rulesOfUser(attributes.user, namespace);
    const missing = uncovered(rules, wanted);
    if (missing.length > 0) throw escalation(attributes, missing, errors);
  };
  const hasVerb = async (
    user: User,
    verb: string,
    resource: string,
    namespace: string,
    name: string,
  ): Promise<boolean> => {
    const decision = await authorizer.authorize({
      user,
      verb,
      isResourceRequest: true,
      apiGroup: RBAC_GROUP,
      apiVersion: '*',
      resource,
      subresource: '',
      namespace,
      name,
      path: '',
    });
    return decision.verdict === 'allow';
  };
  return {
    name: 'RBACEscalation',
    handles: ({ resource, subresource, operation, user }) =>
      resource.group === RBAC_GROUP &&
      subresource === '' &&
      (operation === 'CREATE' || operation === 'UPDATE') &&
      !user.groups.includes(MASTERS),
    async validate(attributes) {
      const { object, oldObject, user, namespace, resource } = attributes;
      if (!object || (oldObject && onlyCollectorFieldsChange(object, oldObject))) return;
      const name = object.metadata.name ?? '';
      switch (resource.resource) {
        case 'roles':
        case 'clusterroles': {
          if (await hasVerb(user, 'escalate', resource.resource, namespace, name)) return;
          if (
            isObject(object['aggregationRule']) &&
            !equal(object['aggregationRule'], oldObject?.['aggregationRule'])
          ) {
            const { rules } = rbac.rulesOfUser(user, '');
            if (uncovered(rules, FULL).length > 0) {
              throw forbidden(attributes, 'must have cluster-admin privileges to use an aggregationRule');
            }
          }
          confirm(attributes, rulesOf(object), namespace);
          return;
        }
        case 'rolebindings':
        case 'clusterrolebindings': {
          const reference = object['roleRef'];
          const clusterRole = textAt(reference, 'kind') === 'ClusterRole';
          const roleResource = clusterRole ? 'clusterroles' : 'roles';
          if (await hasVerb(user, 'bind', roleResource, namespace, textAt(reference, 'name'))) return;
          const { rules, error } = resolveRole(view, reference, namespace);
          if (error !== null) throw missingRole(attributes, reference);
          confirm(attributes, rules, namespace);
        }
      }
    },
  };
}

/**
 * Reports whether only owner references and finalizers change: the garbage collector may change these of roles that it
 * could not grant.
 */
function onlyCollectorFieldsChange(object: ApiObject, before: ApiObject): boolean {
  const same = {
    ...object,
    metadata: {
      ...object.metadata,
      ownerReferences: before.metadata.ownerReferences,
      finalizers: before.metadata.finalizers,
      managedFields: before.metadata.managedFields,
    },
  };
  return equal(same, before);
}

function forbidden(attributes: AdmissionAttributes, why: string): StatusError {
  const { group, resource } = attributes.resource;
  const name = attributes.object?.metadata.name ?? attributes.name;
  return new StatusError(
    403,
    'Forbidden',
    `${resource}.${group} ${JSON.stringify(name)} is forbidden: ${why}`,
    {
      name,
      group,
      kind: resource,
    },
  );
}

function escalation(
  attributes: AdmissionAttributes,
  missing: readonly PolicyRule[],
  errors: readonly string[],
): StatusError {
  const { name, groups } = attributes.user;
  const held = groups.map((group) => JSON.stringify(group)).join(' ');
  const rules = compactRules(missing).map(ruleText).sort().join('\n');
  const resolution = errors.length > 0 ? `; resolution errors: [${errors.join(', ')}]` : '';
  return forbidden(
    attributes,
    `user ${JSON.stringify(name)} (groups=[${held}]) is attempting to grant RBAC permissions not currently held:\n${rules}${resolution}`,
  );
}

/** Uses upstream's words, which name the binding's resource and the role's name. */
function missingRole({ resource }: AdmissionAttributes, reference: unknown): StatusError {
  const name = textAt(reference, 'name');
  return new StatusError(
    404,
    'NotFound',
    `${resource.resource}.${RBAC_GROUP} ${JSON.stringify(name)} not found`,
    {
      name,
      group: RBAC_GROUP,
      kind: resource.resource,
    },
  );
}

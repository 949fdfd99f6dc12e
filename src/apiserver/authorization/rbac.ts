import type { User } from '../authentication/user.ts';
import type { ApiObject } from '../object.ts';
import { isObject, listAt, textAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { Authorizer } from './authorizer.ts';
import { type PolicyRule, ruleAllows, rulesOf } from './policy-rule.ts';

export const RBAC_GROUP = 'rbac.authorization.k8s.io';
export const COLLECTIONS = {
  roles: `roles.${RBAC_GROUP}`,
  clusterRoles: `clusterroles.${RBAC_GROUP}`,
  roleBindings: `rolebindings.${RBAC_GROUP}`,
  clusterRoleBindings: `clusterrolebindings.${RBAC_GROUP}`,
} as const;

/** The result of a lookup of a role, with the error for the reason of a refusal. */
interface Resolution {
  readonly rules: readonly PolicyRule[];
  readonly error: string | null;
}

/** The RBAC authorizer, which also lists the rules of a user (for escalation checks). */
export interface Rbac extends Authorizer {
  rulesOfUser(
    user: User,
    namespace: string,
  ): { readonly rules: readonly PolicyRule[]; readonly errors: readonly string[] };
}

/** Decides by Roles, ClusterRoles and their bindings. Reads the view at every request; has no state. */
export function createRbac(view: ObjectView): Rbac {
  const rulesOfUser: Rbac['rulesOfUser'] = (user, namespace) => {
    const found = [...bindingsFor(view, user, namespace)];
    return {
      rules: found.flatMap(({ rules }) => rules),
      errors: found.flatMap(({ error }) => (error === null ? [] : [error])),
    };
  };
  return {
    authorize(attributes) {
      const errors: string[] = [];
      const namespace = attributes.isResourceRequest ? attributes.namespace : '';
      for (const { rules, source, error } of bindingsFor(view, attributes.user, namespace)) {
        if (error !== null) errors.push(error);
        if (rules.some((rule) => ruleAllows(rule, attributes)))
          return { verdict: 'allow', reason: `RBAC: allowed by ${source()}` };
      }
      if (errors.length === 0) return { verdict: 'noOpinion', reason: '' };
      const text = joinErrors(errors);
      return { verdict: 'noOpinion', reason: `RBAC: ${text}`, error: text };
    },
    rulesFor(user, namespace) {
      const { rules, errors } = rulesOfUser(user, namespace);
      return {
        resourceRules: rules
          .filter((rule) => rule.resources.length > 0)
          .map(({ verbs, apiGroups, resources, resourceNames }) => ({
            verbs,
            apiGroups,
            resources,
            ...(resourceNames.length > 0 ? { resourceNames } : {}),
          })),
        nonResourceRules: rules
          .filter((rule) => rule.nonResourceURLs.length > 0)
          .map(({ verbs, nonResourceURLs }) => ({ verbs, nonResourceURLs })),
        incomplete: errors.length > 0,
        ...(errors.length > 0 ? { evaluationError: joinErrors(errors) } : {}),
      };
    },
    rulesOfUser,
  };
}

/**
 * Joins errors like k8s.io/apimachinery's aggregate errors: a single error unchanged, several without duplicates in
 * brackets.
 */
function joinErrors(errors: readonly string[]): string {
  const unique = [...new Set(errors)];
  return unique.length === 1 ? (unique[0] ?? '') : `[${unique.join(', ')}]`;
}

interface AppliedBinding extends Resolution {
  /** Names the binding, the role and the subject, as upstream's audit reasons do. */
  readonly source: () => string;
}

/** Yields every binding that names the user, cluster-wide ones first, with the rules of its role. */
function* bindingsFor(view: ObjectView, user: User, namespace: string): Generator<AppliedBinding> {
  for (const binding of view.list(COLLECTIONS.clusterRoleBindings)) {
    const subject = listAt(binding, 'subjects').find((one) => namesUser(one, user, ''));
    if (!subject) continue;
    yield {
      ...resolveRole(view, binding['roleRef'], ''),
      source: () => sourceText('ClusterRoleBinding', binding, subject, ''),
    };
  }
  if (namespace === '') return;
  for (const binding of view.list(COLLECTIONS.roleBindings, namespace)) {
    const subject = listAt(binding, 'subjects').find((one) => namesUser(one, user, namespace));
    if (!subject) continue;
    yield {
      ...resolveRole(view, binding['roleRef'], namespace),
      source: () => sourceText('RoleBinding', binding, subject, namespace),
    };
  }
}

/**
 * Reports whether a subject of a binding matches a user. A service account without a namespace is in the binding's
 * namespace.
 */
function namesUser(subject: unknown, user: User, namespace: string): boolean {
  const name = textAt(subject, 'name');
  switch (textAt(subject, 'kind')) {
    case 'User':
      return name === user.name;
    case 'Group':
      return user.groups.includes(name);
    case 'ServiceAccount': {
      const own = textAt(subject, 'namespace') || namespace;
      return own !== '' && user.name === `system:serviceaccount:${own}:${name}`;
    }
    default:
      return false;
  }
}

/** Finds the rules of the role that a binding refers to. */
export function resolveRole(view: ObjectView, reference: unknown, namespace: string): Resolution {
  const name = isObject(reference) ? textAt(reference, 'name') : '';
  const clusterWide = textAt(reference, 'kind') === 'ClusterRole';
  const role = clusterWide
    ? view.get(COLLECTIONS.clusterRoles, `/${name}`)
    : view.get(COLLECTIONS.roles, `${namespace}/${name}`);
  if (role) return { rules: rulesOf(role), error: null };
  const kind = clusterWide ? 'clusterrole' : 'role';
  return { rules: [], error: `${kind}.${RBAC_GROUP} ${JSON.stringify(name)} not found` };
}

function sourceText(kind: string, binding: ApiObject, subject: unknown, namespace: string): string {
  const { name = '' } = binding.metadata;
  const full = namespace === '' ? name : `${name}/${namespace}`;
  const role = `${textAt(binding, 'roleRef', 'kind')} ${JSON.stringify(textAt(binding, 'roleRef', 'name'))}`;
  const own = textAt(subject, 'name');
  const subjectText =
    textAt(subject, 'kind') === 'ServiceAccount'
      ? `ServiceAccount ${JSON.stringify(`${own}/${textAt(subject, 'namespace') || namespace}`)}`
      : `${textAt(subject, 'kind')} ${JSON.stringify(own)}`;
  return `${kind} ${JSON.stringify(full)} of ${role} to ${subjectText}`;
}

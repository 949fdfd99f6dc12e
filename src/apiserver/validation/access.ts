import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, invalid, notSupported, required } from '../status-error.ts';
import { nameProblems, validateLabelSelector } from './names.ts';
import { checkImmutable } from './rules.ts';

const RBAC = 'rbac.authorization.k8s.io';

function validateRules(rules: readonly JsonObject[], namespaced: boolean, errors: FieldError[]): void {
  rules.forEach((rule, i) => {
    const path = `rules[${i}]`;
    const count = (field: string) => listAt(rule, field).length;
    if (count('verbs') === 0) errors.push(required(`${path}.verbs`, 'verbs must contain at least one value'));
    if (count('nonResourceURLs') > 0) {
      if (namespaced) {
        errors.push(
          invalid(
            `${path}.nonResourceURLs`,
            rule['nonResourceURLs'],
            'namespaced rules cannot apply to non-resource URLs',
          ),
        );
      }
      if (count('apiGroups') + count('resources') + count('resourceNames') > 0) {
        errors.push(
          invalid(
            `${path}.nonResourceURLs`,
            rule['nonResourceURLs'],
            'rules cannot apply to both regular resources and non-resource URLs',
          ),
        );
      }
      return;
    }
    if (count('apiGroups') === 0) {
      errors.push(required(`${path}.apiGroups`, 'resource rules must supply at least one api group'));
    }
    if (count('resources') === 0) {
      errors.push(required(`${path}.resources`, 'resource rules must supply at least one resource'));
    }
  });
}

export function validateRole(role: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const namespaced = role.kind === 'Role';
  validateRules(listAt(role, 'rules'), namespaced, errors);
  const aggregation = role['aggregationRule'];
  if (!isObject(aggregation)) return errors;
  const selectors = listAt(aggregation, 'clusterRoleSelectors');
  if (selectors.length === 0) {
    errors.push(
      required(
        'aggregationRule.clusterRoleSelectors',
        'at least one clusterRoleSelector required if aggregationRule is non-nil',
      ),
    );
  }
  selectors.forEach((selector, i) => {
    const path = `aggregationRule.clusterRoleSelectors[${i}]`;
    const problems = validateLabelSelector(selector, path);
    errors.push(...problems);
    // Upstream also reports that the whole selector cannot be used.
    if (problems.length > 0) errors.push(invalid(path, selector, problems[0]?.message ?? ''));
  });
  return errors;
}

export function validateRoleBinding(binding: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const namespaced = binding.kind === 'RoleBinding';
  const role: JsonObject = isObject(binding['roleRef']) ? binding['roleRef'] : {};
  if (role['apiGroup'] !== RBAC) errors.push(notSupported('roleRef.apiGroup', role['apiGroup'], [RBAC]));
  const kinds = namespaced ? ['Role', 'ClusterRole'] : ['ClusterRole'];
  if (!kinds.includes(String(role['kind'] ?? '')))
    errors.push(notSupported('roleRef.kind', role['kind'] ?? '', kinds));
  const name = String(role['name'] ?? '');
  if (name === '') errors.push(required('roleRef.name'));
  else for (const problem of nameProblems(name, 'path')) errors.push(invalid('roleRef.name', name, problem));
  listAt(binding, 'subjects').forEach((subject, i) => {
    validateSubject(subject, `subjects[${i}]`, namespaced, errors);
  });
  if (before) checkImmutable(binding, before, ['roleRef'], errors, 'cannot change roleRef');
  return errors;
}

function validateSubject(subject: JsonObject, path: string, namespaced: boolean, errors: FieldError[]): void {
  const { kind = '', name = '', apiGroup = '', namespace = '' } = subject;
  if (name === '') errors.push(required(`${path}.name`));
  switch (kind) {
    case 'ServiceAccount':
      if (name !== '') {
        for (const problem of nameProblems(String(name), 'subdomain')) {
          errors.push(invalid(`${path}.name`, name, problem));
        }
      }
      if (apiGroup !== '') errors.push(notSupported(`${path}.apiGroup`, apiGroup, ['']));
      if (!namespaced && namespace === '') errors.push(required(`${path}.namespace`));
      break;
    case 'User':
    case 'Group':
      if (apiGroup !== RBAC) errors.push(notSupported(`${path}.apiGroup`, apiGroup, [RBAC]));
      break;
    default:
      errors.push(notSupported(`${path}.kind`, kind, ['ServiceAccount', 'User', 'Group']));
  }
}

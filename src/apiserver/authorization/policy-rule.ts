import { isObject, listAt } from '../object.ts';
import type { AuthorizationAttributes } from './authorizer.ts';

/** A policy rule (rbac.authorization.k8s.io/v1 PolicyRule) without absent fields. */
export interface PolicyRule {
  readonly verbs: readonly string[];
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames: readonly string[];
  readonly nonResourceURLs: readonly string[];
}

const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

/** Reads the rules of a Role or ClusterRole. */
export function rulesOf(role: unknown): PolicyRule[] {
  return listAt(role, 'rules')
    .filter(isObject)
    .map((rule) => ({
      verbs: texts(rule['verbs']),
      apiGroups: texts(rule['apiGroups']),
      resources: texts(rule['resources']),
      resourceNames: texts(rule['resourceNames']),
      nonResourceURLs: texts(rule['nonResourceURLs']),
    }));
}

/** Converts a rule to its API form, without empty lists. */
export function ruleObject(rule: PolicyRule): Record<string, string[]> {
  const fields = ['verbs', 'apiGroups', 'resources', 'resourceNames', 'nonResourceURLs'] as const;
  return Object.fromEntries(
    fields.filter((field) => rule[field].length > 0).map((field) => [field, [...rule[field]]]),
  );
}

const includes = (list: readonly string[], wanted: string) => list.includes('*') || list.includes(wanted);

/** Reports whether a rule allows a request (RBAC: RuleAllows of plugin/pkg/auth/authorizer/rbac). */
export function ruleAllows(rule: PolicyRule, attributes: AuthorizationAttributes): boolean {
  if (!includes(rule.verbs, attributes.verb)) return false;
  if (!attributes.isResourceRequest)
    return rule.nonResourceURLs.some((url) => urlCovers(url, attributes.path));
  return (
    includes(rule.apiGroups, attributes.apiGroup) &&
    resourceMatches(rule.resources, attributes.resource, attributes.subresource) &&
    (rule.resourceNames.length === 0 || rule.resourceNames.includes(attributes.name))
  );
}

function resourceMatches(resources: readonly string[], resource: string, subresource: string): boolean {
  const full = subresource === '' ? resource : `${resource}/${subresource}`;
  return resources.some(
    (one) => one === '*' || one === full || (subresource !== '' && one === `*/${subresource}`),
  );
}

/** Reports whether a nonResourceURL covers another: itself, or for "/path*" all paths that begin with "/path". */
function urlCovers(rule: string, path: string): boolean {
  return rule === '*' || rule === path || (rule.endsWith('*') && path.startsWith(rule.slice(0, -1)));
}

/**
 * Returns the parts of `wanted` that `owned` does not cover, as rules of one verb, group, resource and name each
 * (Covers of k8s.io/component-helpers/auth/rbac/validation). Empty: all of them are covered.
 */
export function uncovered(owned: readonly PolicyRule[], wanted: readonly PolicyRule[]): PolicyRule[] {
  return wanted.flatMap(breakDown).filter((part) => !owned.some((rule) => covers(rule, part)));
}

const NONE = { apiGroups: [], resources: [], resourceNames: [], nonResourceURLs: [] };

function breakDown(rule: PolicyRule): PolicyRule[] {
  const names = rule.resourceNames.length > 0 ? rule.resourceNames.map((name) => [name]) : [[]];
  const ofResources = rule.apiGroups.flatMap((group) =>
    rule.resources.flatMap((resource) =>
      rule.verbs.flatMap((verb) =>
        names.map((resourceNames) => ({
          ...NONE,
          verbs: [verb],
          apiGroups: [group],
          resources: [resource],
          resourceNames,
        })),
      ),
    ),
  );
  const ofUrls = rule.nonResourceURLs.flatMap((url) =>
    rule.verbs.map((verb) => ({ ...NONE, verbs: [verb], nonResourceURLs: [url] })),
  );
  return [...ofResources, ...ofUrls];
}

/** Reports whether a rule covers `part`, which has at most one entry in each list. */
function covers(owner: PolicyRule, part: PolicyRule): boolean {
  const [verb = '', group = '', resource = '', name, url] = [
    part.verbs[0],
    part.apiGroups[0],
    part.resources[0],
    part.resourceNames[0],
    part.nonResourceURLs[0],
  ];
  if (!includes(owner.verbs, verb)) return false;
  if (url !== undefined) return owner.nonResourceURLs.some((own) => urlCovers(own, url));
  if (!includes(owner.apiGroups, group)) return false;
  const slash = resource.indexOf('/');
  const resourceCovered =
    includes(owner.resources, resource) ||
    (slash >= 0 && owner.resources.includes(`*/${resource.slice(slash + 1)}`));
  if (!resourceCovered) return false;
  if (owner.resourceNames.length === 0) return true;
  return name !== undefined && owner.resourceNames.includes(name);
}

/** Formats a rule as upstream's escalation errors do: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}. */
export function ruleText(rule: PolicyRule): string {
  const parts: string[] = [];
  const add = (label: string, values: readonly string[]) => {
    if (values.length > 0) parts.push(`${label}:[${values.map((value) => JSON.stringify(value)).join(' ')}]`);
  };
  add('APIGroups', rule.apiGroups);
  add('Resources', rule.resources);
  add('ResourceNames', rule.resourceNames);
  add('NonResourceURLs', rule.nonResourceURLs);
  add('Verbs', rule.verbs);
  return `{${parts.join(', ')}}`;
}

/** Merges rules that differ in one list only, as upstream shows them in refusals (CompactRules). */
export function compactRules(rules: readonly PolicyRule[]): PolicyRule[] {
  const simple = new Map<string, PolicyRule>();
  const others: PolicyRule[] = [];
  for (const rule of rules) {
    const single =
      rule.resources.length === 1 &&
      rule.apiGroups.length === 1 &&
      rule.resourceNames.length <= 1 &&
      rule.nonResourceURLs.length === 0;
    if (!single) {
      others.push(rule);
      continue;
    }
    const key = JSON.stringify([rule.apiGroups, rule.resources, rule.resourceNames]);
    const before = simple.get(key);
    simple.set(key, before ? { ...before, verbs: [...before.verbs, ...rule.verbs] } : rule);
  }
  return [...others, ...simple.values()];
}

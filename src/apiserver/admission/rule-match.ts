import { selectorMatches } from '../label-selector.ts';
import { type ApiObject, isObject, type JsonObject, listAt } from '../object.ts';
import type { ObjectView } from '../object-view.ts';
import type { ResourceRegistry } from '../services.ts';
import type { AdmissionAttributes } from './plugin.ts';

/** A resource of the API as named in rules. */
export interface GroupVersionResource {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
}

/**
 * The configuration of admission itself: webhooks and policies do not apply to it, so that it can always be repaired.
 */
const EXEMPT = new Set([
  'mutatingwebhookconfigurations',
  'validatingwebhookconfigurations',
  'mutatingadmissionpolicies',
  'mutatingadmissionpolicybindings',
  'validatingadmissionpolicies',
  'validatingadmissionpolicybindings',
]);

export function isExempt({ resource }: AdmissionAttributes): boolean {
  return resource.group === 'admissionregistration.k8s.io' && EXEMPT.has(resource.resource);
}

const texts = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);
const has = (list: readonly string[], wanted: string) => list.includes('*') || list.includes(wanted);

/**
 * Reports whether a rule (admissionregistration.k8s.io/v1 RuleWithOperations) matches the operation and the resource.
 */
function ruleMatches(
  rule: JsonObject,
  { operation, subresource, namespace }: AdmissionAttributes,
  { group, version, resource }: GroupVersionResource,
): boolean {
  const scope = rule['scope'] ?? '*';
  const inNamespace = namespace !== '' && resource !== 'namespaces';
  if (scope === 'Namespaced' && !inNamespace) return false;
  if (scope === 'Cluster' && inNamespace) return false;
  return (
    has(texts(rule['operations']), operation) &&
    has(texts(rule['apiGroups']), group) &&
    has(texts(rule['apiVersions']), version) &&
    texts(rule['resources']).some((pattern) => resourceMatches(pattern, resource, subresource))
  );
}

/**
 * Matches patterns such as "pods" and "pods/status", where either part may be "*"; "*" alone does not match
 * subresources.
 */
function resourceMatches(pattern: string, resource: string, subresource: string): boolean {
  const [wanted = '', sub = ''] = pattern.split('/');
  if (wanted !== '*' && wanted !== resource) return false;
  return sub === '*' || sub === subresource;
}

/**
 * Finds the resource by which a list of rules matches: that of the request or (matchPolicy Equivalent) another group or
 * version that serves the same objects. Returns null if there is none.
 */
export function matchingResource(
  rules: readonly JsonObject[],
  policy: unknown,
  attributes: AdmissionAttributes,
  registry: ResourceRegistry,
): GroupVersionResource | null {
  const { resource } = attributes;
  if (rules.some((rule) => ruleMatches(rule, attributes, resource))) return resource;
  if (policy === 'Exact') return null;
  for (const other of equivalents(resource, registry)) {
    if (rules.some((rule) => ruleMatches(rule, attributes, other))) return other;
  }
  return null;
}

function equivalents(own: GroupVersionResource, registry: ResourceRegistry): GroupVersionResource[] {
  const collection = registry.find(own.group, own.version, own.resource)?.kind.collection;
  if (collection === undefined) return [];
  return registry
    .all()
    .filter(
      ({ kind, stored }) =>
        stored &&
        kind.collection === collection &&
        (kind.group !== own.group || kind.version !== own.version),
    )
    .map(({ kind }) => ({ group: kind.group, version: kind.version, resource: kind.plural }));
}

/** Reports whether the namespace of a request has the labels; requests for cluster-wide objects always match. */
export function namespaceMatches(
  selector: unknown,
  attributes: AdmissionAttributes,
  view: ObjectView,
): boolean {
  if (!isObject(selector) || Object.keys(selector).length === 0) return true;
  const { namespace, resource, object, oldObject, name } = attributes;
  if (resource.group === '' && resource.resource === 'namespaces') {
    const own = object ?? oldObject ?? view.get('namespaces', `/${name}`);
    return selectorMatches(selector, own?.metadata.labels ?? {});
  }
  if (namespace === '') return true;
  return selectorMatches(selector, view.get('namespaces', `/${namespace}`)?.metadata.labels ?? {});
}

/** Reports whether the new or the old object has the labels. */
export function objectMatches(selector: unknown, { object, oldObject }: AdmissionAttributes): boolean {
  if (!isObject(selector) || Object.keys(selector).length === 0) return true;
  return [object, oldObject].some((one) => one !== null && selectorMatches(selector, labelsOf(one)));
}

/** Options of a connection (PodExecOptions) have no labels. */
const labelsOf = (object: ApiObject): Readonly<Record<string, string>> =>
  (object.metadata as ApiObject['metadata'] | undefined)?.labels ?? {};

export const rulesIn = (object: unknown, ...path: string[]): JsonObject[] =>
  listAt(object, ...path).filter(isObject);

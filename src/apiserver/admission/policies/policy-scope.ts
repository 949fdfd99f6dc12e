import { selectorMatches } from '../../label-selector.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import type { ResourceRegistry } from '../../services.ts';
import type { AdmissionAttributes } from '../plugin.ts';
import {
  type GroupVersionResource,
  isExempt,
  matchingResource,
  namespaceMatches,
  objectMatches,
  rulesIn,
} from '../rule-match.ts';

/** State that policies read in addition to the request. */
export interface PolicyWorld {
  readonly view: ObjectView;
  readonly registry: ResourceRegistry;
}

const GROUP = 'admissionregistration.k8s.io';

/** A policy and one of its bindings, both of which match a write. */
export interface BoundPolicy {
  readonly policy: ApiObject;
  readonly binding: ApiObject;
  /** The resource that the policy's rules matched: the request's, or an equivalent one. */
  readonly resource: GroupVersionResource;
}

/** Returns the policies of a type with each binding such that both match the request. */
export function boundPolicies(
  world: PolicyWorld,
  type: 'validating' | 'mutating',
  attributes: AdmissionAttributes,
): BoundPolicy[] {
  if (isExempt(attributes)) return [];
  const policies = world.view.list(`${type}admissionpolicies.${GROUP}`);
  if (policies.length === 0) return [];
  const bindings = world.view.list(`${type}admissionpolicybindings.${GROUP}`);
  return policies.flatMap((policy) => {
    const resource = constraintsMatch(world, at(policy, 'spec', 'matchConstraints'), attributes, true);
    if (!resource) return [];
    return bindings
      .filter(
        (binding) =>
          textAt(binding, 'spec', 'policyName') === policy.metadata.name &&
          constraintsMatch(world, at(binding, 'spec', 'matchResources'), attributes, false) !== null,
      )
      .map((binding) => ({ policy, binding, resource }));
  });
}

/**
 * Returns the resource by which MatchResources match; null if they do not. Without rules, a binding matches everything,
 * a policy nothing.
 */
function constraintsMatch(
  { view, registry }: PolicyWorld,
  constraints: unknown,
  attributes: AdmissionAttributes,
  needsRules: boolean,
): GroupVersionResource | null {
  const any = needsRules ? null : attributes.resource;
  if (!isObject(constraints)) return any;
  if (!namespaceMatches(constraints['namespaceSelector'], attributes, view)) return null;
  if (!objectMatches(constraints['objectSelector'], attributes)) return null;
  const named = (rules: readonly JsonObject[]) =>
    rules.filter((rule) => {
      const names = rule['resourceNames'];
      return !Array.isArray(names) || names.length === 0 || names.includes(attributes.name);
    });
  const policy = constraints['matchPolicy'];
  const excluded = named(rulesIn(constraints, 'excludeResourceRules'));
  if (matchingResource(excluded, policy, attributes, registry)) return null;
  const rules = rulesIn(constraints, 'resourceRules');
  if (rules.length === 0) return any;
  return matchingResource(named(rules), policy, attributes, registry);
}

/** A policy whose parameters cannot be found or are of an unknown kind. */
export class ParameterError extends Error {
  override readonly name = 'ParameterError';
}

/**
 * Returns the parameter objects of a binding: [null] for a policy without parameters, [] if none were found and that is
 * allowed. Throws ParameterError if required parameters are missing.
 */
export function parametersOf(
  { view, registry }: PolicyWorld,
  policy: ApiObject,
  binding: ApiObject,
  attributes: AdmissionAttributes,
): (ApiObject | null)[] {
  const paramKind = at(policy, 'spec', 'paramKind');
  const reference = at(binding, 'spec', 'paramRef');
  if (!isObject(paramKind) || !isObject(reference)) return [null];
  const [group = '', version = ''] = splitVersion(textAt(paramKind, 'apiVersion'));
  const kind = registry
    .all()
    .find(
      (one) =>
        one.stored &&
        one.kind.group === group &&
        one.kind.version === version &&
        one.kind.kind === textAt(paramKind, 'kind'),
    )?.kind;
  if (!kind) {
    throw new ParameterError(
      `failed to find resource referenced by paramKind: '${textAt(paramKind, 'apiVersion')}, Kind=${textAt(paramKind, 'kind')}'`,
    );
  }
  const namespace = kind.namespaced ? textAt(reference, 'namespace') || attributes.namespace : '';
  if (kind.namespaced && namespace === '') {
    throw new ParameterError(
      'cannot use namespaced paramRef in policy binding that matches cluster-scoped resources',
    );
  }
  const name = textAt(reference, 'name');
  const { selector } = reference;
  const found =
    name !== ''
      ? [view.get(kind.collection, `${namespace}/${name}`)].filter((one) => one !== undefined)
      : view
          .list(kind.collection, kind.namespaced ? namespace : undefined)
          .filter(({ metadata }) => isObject(selector) && selectorMatches(selector, metadata.labels ?? {}));
  if (found.length > 0) return found;
  if (reference['parameterNotFoundAction'] !== 'Allow') {
    throw new ParameterError('no params found for policy binding with `Deny` parameterNotFoundAction');
  }
  return [];
}

function splitVersion(apiVersion: string): [string, string] {
  const slash = apiVersion.indexOf('/');
  return slash < 0 ? ['', apiVersion] : [apiVersion.slice(0, slash), apiVersion.slice(slash + 1)];
}

export const variablesIn = (policy: ApiObject): JsonObject[] => listAt(policy, 'spec', 'variables');

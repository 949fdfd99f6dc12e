import type { ApiError } from './client.ts';
import type { Resource } from './types.ts';

/** A list or watch that the API server forbids. */
export interface MissingRule {
  readonly verb: 'list' | 'watch';
  /** "endpointslices.discovery.k8s.io" */
  readonly resource: string;
  /** A forbidden request, its user, and the rule to add. */
  readonly message: string;
}

/** The built-in role that has these resources; every cluster has it. */
const BUILT_IN_ROLE = 'system:node-proxier';
const IN_BUILT_IN_ROLE: ReadonlySet<string> = new Set([
  'nodes',
  'services',
  'endpointslices.discovery.k8s.io',
  'servicecidrs.networking.k8s.io',
]);

/** Describes a refusal of a list or watch of a resource, in one namespace or all. */
export function missingRule(
  error: ApiError,
  verb: MissingRule['verb'],
  resource: Resource,
  namespace?: string,
): MissingRule {
  const name = nameOf(resource);
  const where = namespace === undefined ? '' : ` in namespace ${namespace}`;
  const rule = `{apiGroups: ["${resource.group}"], resources: ["${resource.plural}"], verbs: ["list", "watch"]}`;
  const role =
    namespace !== undefined
      ? `bind ${userOf(error)} to a Role with the rule ${rule}`
      : IN_BUILT_IN_ROLE.has(name)
        ? `bind ${userOf(error)} to the ClusterRole ${BUILT_IN_ROLE}, or to one with the rule ${rule}`
        : `bind ${userOf(error)} to a ClusterRole with the rule ${rule}`;
  return { verb, resource: name, message: `not allowed to ${verb} ${name}${where}: ${role}` };
}

/** Returns the resource with its group, as kubectl writes it. */
function nameOf({ plural, group }: Resource): string {
  return group === '' ? plural : `${plural}.${group}`;
}

/** Returns the name that the API server knows this client by. */
function userOf(error: ApiError): string {
  const user = /User "([^"]+)"/.exec(error.message)?.[1];
  return user === undefined ? 'this client' : `user ${user}`;
}

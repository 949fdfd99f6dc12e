import type { Authorizer } from '../authorization/authorizer.ts';
import { AuthorizerValue, requestResource } from '../cel/authorizer-functions.ts';
import { CelError } from '../cel/cel-error.ts';
import type { RequestPrograms } from '../cel/request-program.ts';
import { type JsonObject, textAt } from '../object.ts';
import type { AdmissionAttributes } from './plugin.ts';

/** Variables of match conditions and policies, in addition to those that a policy declares. */
export const REQUEST_VARIABLES = ['object', 'oldObject', 'request', 'authorizer'] as const;

/** Returns the values of `REQUEST_VARIABLES` for a write. */
export function requestVariables(
  attributes: AdmissionAttributes,
  authorizer: Authorizer,
): Record<string, unknown> {
  const { user, kind, resource, subresource, name, namespace, operation, options, dryRun } = attributes;
  const own = new AuthorizerValue(authorizer, user);
  return {
    object: attributes.object,
    oldObject: attributes.oldObject,
    request: {
      kind,
      resource,
      subResource: subresource,
      requestKind: kind,
      requestResource: resource,
      requestSubResource: subresource,
      name,
      namespace,
      operation,
      userInfo: {
        username: user.name,
        uid: user.uid ?? '',
        groups: [...user.groups],
        extra: user.extra ?? {},
      },
      dryRun,
      options,
    },
    authorizer: Object.assign(own, {
      requestResource: requestResource(own, {
        group: resource.group,
        resource: resource.resource,
        subresource,
        namespace,
        name,
      }),
    }),
  };
}

/**
 * Evaluates match conditions: returns true if all are true, false if any is false. Throws CelError for the first that
 * failed if none is false.
 */
export async function conditionsMatch(
  conditions: readonly JsonObject[],
  programs: RequestPrograms,
  variables: Readonly<Record<string, unknown>>,
): Promise<boolean> {
  let failure: CelError | null = null;
  for (const condition of conditions) {
    try {
      const value = await programs.compile(textAt(condition, 'expression')).evaluate(variables);
      if (value !== true) return false;
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      failure ??= error;
    }
  }
  if (failure) throw failure;
  return true;
}

import type { AuthorizationAttributes } from '../authorization/authorizer.ts';
import type { RequestContext } from './request-context.ts';

/** Returns the facts about a request that determine whether it is allowed. */
export function authorizationAttributes(context: RequestContext): AuthorizationAttributes {
  const { info, user } = context;
  return {
    user,
    verb: info.verb,
    isResourceRequest: info.isResourceRequest,
    apiGroup: info.apiGroup,
    apiVersion: info.apiVersion,
    resource: info.resource,
    subresource: info.subresource,
    namespace: info.namespace,
    name: info.name,
    path: info.path,
    ...(info.fieldSelector === '' ? {} : { fieldSelector: info.fieldSelector }),
    ...(info.labelSelector === '' ? {} : { labelSelector: info.labelSelector }),
  };
}

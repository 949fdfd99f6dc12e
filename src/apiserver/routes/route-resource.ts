import type { OutgoingResponse } from '../requests/request.ts';
import { type RequestContext, warn } from '../requests/request-context.ts';
import type { ApiServices, ResourceContext } from '../services.ts';
import { methodNotAllowed } from '../status-error.ts';
import type { ResourceVerb } from './resource-verb.ts';

/**
 * Runs the handler of a resource's verb; returns null for an unknown resource. Throws StatusError 405 for unsupported
 * verbs.
 */
export async function routeResource(
  context: RequestContext,
  services: ApiServices,
): Promise<OutgoingResponse | null> {
  const { info, request } = context;
  if (!info.isResourceRequest) return null;
  const resource = services.registry.find(info.apiGroup, info.apiVersion, info.resource);
  if (!resource) return null;
  const { kind } = resource;
  if (kind.deprecation) warn(context, kind.deprecation);
  const isCollection = info.verb === 'list' || info.verb === 'deletecollection';
  // The path of a cluster-wide resource must not have a namespace, that of a namespaced object must have one.
  const isOwnNamespace = info.resource === 'namespaces' && info.apiGroup === '';
  if (!kind.namespaced && info.namespace !== '' && !isOwnNamespace) return null;
  if (
    kind.namespaced &&
    info.namespace === '' &&
    info.name !== '' &&
    !isCollection &&
    info.verb !== 'watch'
  ) {
    return null;
  }
  const target: ResourceContext = {
    ...context,
    resource,
    kind,
    namespace: kind.namespaced ? info.namespace : '',
    name: isCollection ? '' : info.name,
  };
  if (info.subresource !== '') {
    const subresource = resource.subresources.get(info.subresource);
    if (!subresource) return null;
    if (subresource.connect) return subresource.connect(target, services);
    if (info.subpath !== '' && info.subpath !== '/') return null;
    const handler = subresource.handlers[info.verb as ResourceVerb];
    if (!handler || request.method === 'HEAD') throw notAllowed();
    return handler(target, services);
  }
  const handler = resource.handlers[info.verb as ResourceVerb];
  const needsName = info.verb === 'update' || info.verb === 'patch';
  if (!handler || request.method === 'HEAD' || (needsName && info.name === '')) throw notAllowed();
  if (info.verb === 'create' && info.name !== '') throw notAllowed();
  return handler(target, services);
}

const notAllowed = () => methodNotAllowed('the server does not allow this method on the requested resource');

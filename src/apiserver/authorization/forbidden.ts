import { StatusError } from '../status-error.ts';
import type { AuthorizationAttributes } from './authorizer.ts';

/** Builds the refusal of a request in upstream's words (k8s.io/apiserver responsewriters.Forbidden). */
export function authorizationForbidden(attributes: AuthorizationAttributes, reason: string): StatusError {
  const user = JSON.stringify(attributes.user.name);
  const because = reason === '' ? '' : `: ${reason}`;
  if (!attributes.isResourceRequest) {
    const message = `forbidden: User ${user} cannot ${attributes.verb} path ${JSON.stringify(attributes.path)}${because}`;
    return new StatusError(403, 'Forbidden', message, {});
  }
  const { apiGroup, name, namespace } = attributes;
  const resource =
    attributes.subresource === '' ? attributes.resource : `${attributes.resource}/${attributes.subresource}`;
  const qualified = apiGroup === '' ? attributes.resource : `${attributes.resource}.${apiGroup}`;
  const scope = namespace === '' ? ' at the cluster scope' : ` in the namespace ${JSON.stringify(namespace)}`;
  const message = `User ${user} cannot ${attributes.verb} resource ${JSON.stringify(resource)} in API group ${JSON.stringify(apiGroup)}${scope}${because}`;
  return new StatusError(
    403,
    'Forbidden',
    `${qualified}${name === '' ? '' : ` ${JSON.stringify(name)}`} is forbidden: ${message}`,
    {
      ...(name === '' ? {} : { name }),
      ...(apiGroup === '' ? {} : { group: apiGroup }),
      kind: attributes.resource,
    },
  );
}

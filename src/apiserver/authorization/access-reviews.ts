import type { User } from '../authentication/user.ts';
import { at, isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { type FieldError, invalid, StatusError } from '../status-error.ts';
import type { AuthorizationAttributes, Authorizer } from './authorizer.ts';

const GROUP = 'authorization.k8s.io';

/**
 * Returns the status of a SelfSubjectAccessReview: whether the client may do what `spec` describes. Throws StatusError
 * 422.
 */
export async function selfAccessStatus(
  authorizer: Authorizer,
  user: User,
  spec: JsonObject,
): Promise<object> {
  checkSpec(spec, false, null);
  return status(authorizer, attributesOf(spec, user));
}

/**
 * Returns the status of a SubjectAccessReview, or of a LocalSubjectAccessReview in `namespace`. Throws StatusError 422.
 */
export async function subjectAccessStatus(
  authorizer: Authorizer,
  spec: JsonObject,
  namespace: string | null,
): Promise<object> {
  checkSpec(spec, true, namespace);
  const { groups, extra } = spec;
  const user: User = {
    name: textAt(spec, 'user'),
    ...(textAt(spec, 'uid') === '' ? {} : { uid: textAt(spec, 'uid') }),
    groups: Array.isArray(groups) ? groups.map(String) : [],
    ...(isObject(extra)
      ? {
          extra: Object.fromEntries(
            Object.entries(extra).map(([key, values]) => [
              key,
              Array.isArray(values) ? values.map(String) : [],
            ]),
          ),
        }
      : {}),
  };
  return status(authorizer, attributesOf(spec, user));
}

/**
 * Throws StatusError 422 unless the spec names a resource or a path (exactly one of them), a subject, and the review's
 * namespace.
 */
function checkSpec(spec: JsonObject, subject: boolean, namespace: string | null): void {
  const errors: FieldError[] = [];
  const resource = at(spec, 'resourceAttributes');
  const path = at(spec, 'nonResourceAttributes');
  if (isObject(resource) && isObject(path)) {
    errors.push(
      invalid(
        'spec.nonResourceAttributes',
        path,
        'cannot be specified in combination with resourceAttributes',
      ),
    );
  } else if (!isObject(resource) && !isObject(path)) {
    errors.push(
      invalid(
        'spec.resourceAttributes',
        null,
        'exactly one of nonResourceAttributes or resourceAttributes must be specified',
      ),
    );
  }
  if (subject && textAt(spec, 'user') === '' && listAt(spec, 'groups').length === 0) {
    errors.push(invalid('spec.user', '', 'at least one of user or group must be specified'));
  }
  const own = textAt(resource, 'namespace');
  if (namespace !== null && isObject(resource) && own !== namespace) {
    errors.push(invalid('spec.resourceAttributes.namespace', own, 'must match metadata.namespace'));
  }
  if (errors.length === 0) return;
  const texts = errors.map((error) => `${error.field}: ${error.message}`);
  const list = texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`;
  // Upstream omits the kind from this message.
  throw new StatusError(422, 'Invalid', `.${GROUP} "" is invalid: ${list}`, { group: GROUP, causes: errors });
}

function attributesOf(spec: JsonObject, user: User): AuthorizationAttributes {
  const path = at(spec, 'nonResourceAttributes');
  const resource = at(spec, 'resourceAttributes');
  const of = (field: string) => textAt(resource, field);
  const selector = at(resource, 'fieldSelector');
  return {
    user,
    isResourceRequest: isObject(resource),
    verb: isObject(resource) ? of('verb') : textAt(path, 'verb'),
    apiGroup: of('group'),
    apiVersion: of('version'),
    resource: of('resource'),
    subresource: of('subresource'),
    namespace: of('namespace'),
    name: of('name'),
    path: textAt(path, 'path'),
    ...(isObject(selector) ? { fieldSelector: selectorText(selector) } : {}),
  };
}

/** Formats a selector of an access review as the query parameter of a request. */
function selectorText(selector: JsonObject): string {
  const raw = textAt(selector, 'rawSelector');
  if (raw !== '') return raw;
  return listAt(selector, 'requirements')
    .filter(({ operator, values }) => operator === 'In' && Array.isArray(values) && values.length === 1)
    .map(({ key, values }) => `${String(key)}=${String((values as unknown[])[0])}`)
    .join(',');
}

async function status(authorizer: Authorizer, attributes: AuthorizationAttributes): Promise<object> {
  const { verdict, reason, error } = await authorizer.authorize(attributes);
  return {
    allowed: verdict === 'allow',
    ...(verdict === 'deny' ? { denied: true } : {}),
    ...(reason === '' ? {} : { reason }),
    ...(error === undefined ? {} : { evaluationError: error }),
  };
}

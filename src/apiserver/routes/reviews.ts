import type { User } from '../authentication/authenticator.ts';
import type { AuthorizationAttributes, Decision } from '../authorization/authorizer.ts';
import { defineKind } from '../kind.ts';
import { isObject, type JsonObject, listAt, textAt } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated } from '../requests/responses.ts';
import type { ApiServices } from '../services.ts';
import { badRequest } from '../status-error.ts';
import { checkFields, readRequestOptions } from '../verbs/write-options.ts';
import type { Resource, ResourceContext } from './resource.ts';

type Answer = (services: ApiServices, context: ResourceContext, spec: JsonObject) => Promise<object> | object;

/** A resource that is only created, to ask something; nothing is stored. `answer` makes its status. */
function reviewResource(apiVersion: string, kindName: string, namespaced: boolean, answer: Answer): Resource {
  const kind = defineKind(apiVersion, kindName, `${kindName.toLowerCase()}s`, { namespaced });
  return {
    kind,
    stored: false,
    subresources: new Map(),
    handlers: {
      async create(context, services) {
        const options = readRequestOptions(context.query, 'CreateOptions');
        const body = await readBody(context, services.schema);
        checkFields(services, kind, body, context, options.fieldValidation);
        const { apiVersion: _version, kind: _kind, ...given } = isObject(body.object) ? body.object : {};
        const spec = isObject(given['spec']) ? given['spec'] : {};
        const status = await answer(services, context, spec);
        const review = { kind: kindName, apiVersion, metadata: {}, ...given, status };
        return respondNegotiated(services.schema, context, 201, review);
      },
    },
  };
}

const userInfo = (user: User) => ({
  username: user.name,
  ...(user.uid ? { uid: user.uid } : {}),
  groups: user.groups,
  ...(user.extra ? { extra: user.extra } : {}),
});

/** The attributes that an access review asks about (k8s.io/kubernetes pkg/registry/authorization/util). */
function attributesOf(user: User, spec: JsonObject): AuthorizationAttributes {
  const resource = isObject(spec['resourceAttributes']) ? spec['resourceAttributes'] : null;
  const path = isObject(spec['nonResourceAttributes']) ? spec['nonResourceAttributes'] : null;
  if (!resource === !path) {
    throw badRequest('exactly one of resourceAttributes and nonResourceAttributes must be specified');
  }
  return {
    user,
    verb: textAt(resource ?? path, 'verb'),
    isResourceRequest: resource !== null,
    apiGroup: textAt(resource, 'group'),
    apiVersion: textAt(resource, 'version'),
    resource: textAt(resource, 'resource'),
    subresource: textAt(resource, 'subresource'),
    namespace: textAt(resource, 'namespace'),
    name: textAt(resource, 'name'),
    path: textAt(path, 'path'),
  };
}

const accessStatus = ({ verdict, reason, error }: Decision) => ({
  allowed: verdict === 'allow',
  ...(verdict === 'deny' ? { denied: true } : {}),
  ...(reason === '' ? {} : { reason }),
  ...(error === undefined ? {} : { evaluationError: error }),
});

const subjectAccess: Answer = async (services, context, spec) => {
  const name = textAt(spec, 'user');
  const groups = listAt(spec, 'groups').map(String);
  if (name === '' && groups.length === 0) throw badRequest('at least one of user or group must be specified');
  const attributes = attributesOf({ name, uid: textAt(spec, 'uid'), groups }, spec);
  if (context.kind.namespaced && attributes.namespace !== context.namespace) {
    throw badRequest('spec.resourceAttributes.namespace must match the namespace of the review');
  }
  return accessStatus(await services.authorizer.authorize(attributes));
};

export const REVIEW_RESOURCES: readonly Resource[] = [
  reviewResource('authentication.k8s.io/v1', 'SelfSubjectReview', false, (_services, context) => ({
    userInfo: userInfo(context.user),
  })),
  reviewResource('authentication.k8s.io/v1', 'TokenReview', false, (services, _context, spec) => {
    const audiences = listAt(spec, 'audiences').map(String);
    const user = services.tokens.verify(textAt(spec, 'token'), audiences.length > 0 ? audiences : undefined);
    return user
      ? { authenticated: true, user: userInfo(user), ...(audiences.length > 0 ? { audiences } : {}) }
      : { user: {}, error: 'invalid bearer token' };
  }),
  reviewResource('authorization.k8s.io/v1', 'LocalSubjectAccessReview', true, subjectAccess),
  reviewResource(
    'authorization.k8s.io/v1',
    'SelfSubjectAccessReview',
    false,
    async (services, context, spec) =>
      accessStatus(await services.authorizer.authorize(attributesOf(context.user, spec))),
  ),
  reviewResource(
    'authorization.k8s.io/v1',
    'SelfSubjectRulesReview',
    false,
    async (services, context, spec) => {
      const namespace = textAt(spec, 'namespace');
      if (namespace === '') throw badRequest('no namespace on request');
      return services.authorizer.rulesFor(context.user, namespace);
    },
  ),
  reviewResource('authorization.k8s.io/v1', 'SubjectAccessReview', false, subjectAccess),
];

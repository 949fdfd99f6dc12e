import type { User } from '../authentication/user.ts';
import { selfAccessStatus, subjectAccessStatus } from '../authorization/access-reviews.ts';
import { defineKind } from '../kind.ts';
import { isObject, type JsonObject, textAt } from '../object.ts';
import { readBody } from '../requests/body.ts';
import { respondNegotiated } from '../requests/responses.ts';
import type { ApiServices, Resource, ResourceContext } from '../services.ts';
import { badRequest } from '../status-error.ts';
import { checkFields, readRequestOptions } from '../verbs/write-options.ts';

type Answer = (services: ApiServices, context: ResourceContext, spec: JsonObject) => Promise<object> | object;

/** Builds a resource that supports only creation, as a query; nothing is stored. `answer` computes its status. */
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

export const REVIEW_RESOURCES: readonly Resource[] = [
  reviewResource('authentication.k8s.io/v1', 'SelfSubjectReview', false, (_services, context) => ({
    userInfo: userInfo(context.user),
  })),
  reviewResource('authentication.k8s.io/v1', 'TokenReview', false, (services, _context, spec) => {
    const { tokens } = services;
    const token = textAt(spec, 'token');
    const asked = Array.isArray(spec['audiences']) ? spec['audiences'].map(String) : [];
    const wanted = asked.length > 0 ? asked : [tokens.issuer];
    const user = tokens.verify(token, wanted);
    if (!user) return { user: {}, error: 'invalid bearer token' };
    const audiences = tokens.audiencesOf(token).filter((audience) => wanted.includes(audience));
    return { authenticated: true, user: userInfo(user), audiences };
  }),
  reviewResource('authorization.k8s.io/v1', 'LocalSubjectAccessReview', true, (services, context, spec) =>
    subjectAccessStatus(services.authorizer, spec, context.namespace),
  ),
  reviewResource('authorization.k8s.io/v1', 'SelfSubjectAccessReview', false, (services, context, spec) =>
    selfAccessStatus(services.authorizer, context.user, spec),
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
  reviewResource('authorization.k8s.io/v1', 'SubjectAccessReview', false, (services, _context, spec) =>
    subjectAccessStatus(services.authorizer, spec, null),
  ),
];

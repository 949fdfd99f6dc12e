import type { ApiPath, IncomingRequest } from './api-request.ts';
import { isObject } from './object.ts';
import type { TokenIssuer } from './service-account-tokens.ts';

/** Answers a review: whoever is authenticated may do everything (there is one tenant on a local cluster). */
export async function review(
  options: { readonly tokens: TokenIssuer },
  target: ApiPath,
  body: unknown,
  request: IncomingRequest,
): Promise<object> {
  const { apiVersion: _version, kind: _kind, ...given } = isObject(body) ? body : {};
  const base = { apiVersion: `${target.group}/${target.version}`, metadata: {}, ...given };
  const userInfo = { username: request.user.name, uid: request.user.uid ?? '', groups: request.user.groups };
  switch (target.plural) {
    case 'selfsubjectreviews':
      return { ...base, kind: 'SelfSubjectReview', status: { userInfo } };
    case 'tokenreviews': {
      const spec = isObject(given['spec']) ? given['spec'] : {};
      const user = options.tokens.verify(
        String(spec['token'] ?? ''),
        Array.isArray(spec['audiences']) && spec['audiences'].length > 0
          ? spec['audiences'].map(String)
          : undefined,
      );
      const status = user
        ? { authenticated: true, user: { username: user.name, uid: user.uid ?? '', groups: user.groups } }
        : { authenticated: false, error: 'the token is not valid' };
      return { ...base, kind: 'TokenReview', status };
    }
    case 'selfsubjectrulesreviews':
      return {
        ...base,
        kind: 'SelfSubjectRulesReview',
        status: {
          resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }],
          nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
          incomplete: false,
        },
      };
    default: {
      const kinds: Readonly<Record<string, string>> = {
        selfsubjectaccessreviews: 'SelfSubjectAccessReview',
        subjectaccessreviews: 'SubjectAccessReview',
        localsubjectaccessreviews: 'LocalSubjectAccessReview',
      };
      return {
        ...base,
        kind: kinds[target.plural] ?? target.plural,
        status: { allowed: true, reason: 'every authenticated user may do everything' },
      };
    }
  }
}

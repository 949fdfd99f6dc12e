import type { User } from '../authentication/user.ts';

/** The facts about a request that determine whether it is allowed, as k8s.io/apiserver authorizer.Attributes. */
export interface AuthorizationAttributes {
  readonly user: User;
  /** "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"; for paths: the method in lower case. */
  readonly verb: string;
  readonly isResourceRequest: boolean;
  readonly apiGroup: string;
  readonly apiVersion: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  readonly path: string;
  readonly fieldSelector?: string;
  readonly labelSelector?: string;
}

export interface Decision {
  readonly verdict: 'allow' | 'deny' | 'noOpinion';
  readonly reason: string;
  /** Roles that could not be evaluated (because they do not exist, for example). */
  readonly error?: string;
}

/** One rule of SelfSubjectRulesReview. */
export interface ResourceRule {
  readonly verbs: readonly string[];
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly resourceNames?: readonly string[];
}
export interface NonResourceRule {
  readonly verbs: readonly string[];
  readonly nonResourceURLs?: readonly string[];
}
export interface Rules {
  readonly resourceRules: readonly ResourceRule[];
  readonly nonResourceRules: readonly NonResourceRule[];
  readonly incomplete: boolean;
  readonly evaluationError?: string;
}

export interface Authorizer {
  authorize(attributes: AuthorizationAttributes): Decision | Promise<Decision>;
  /** Returns the rights of a user in a namespace, for `kubectl auth can-i --list`. */
  rulesFor(user: User, namespace: string): Rules | Promise<Rules>;
}

/** Paths that every client may read: the health of the server. */
const OPEN_PATHS = /^\/(healthz|livez|readyz)(\/|$)/;

/** Allows authenticated users everything, and all others the health of the server. */
export function createAlwaysAllow(): Authorizer {
  return {
    authorize(attributes) {
      const authenticated = !attributes.user.groups.includes('system:unauthenticated');
      return authenticated || (!attributes.isResourceRequest && OPEN_PATHS.test(attributes.path))
        ? { verdict: 'allow', reason: 'every authenticated user may do everything' }
        : { verdict: 'noOpinion', reason: 'anonymous users may only read the health of the server' };
    },
    rulesFor: () => ({
      resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }],
      nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
      incomplete: false,
    }),
  };
}

/** Calls authorizers in order: the first that allows or denies decides (k8s.io/apiserver union authorizer). */
export function unionAuthorizer(authorizers: readonly Authorizer[]): Authorizer {
  return {
    async authorize(attributes) {
      const reasons: string[] = [];
      const errors: string[] = [];
      for (const authorizer of authorizers) {
        const decision = await authorizer.authorize(attributes);
        if (decision.error) errors.push(decision.error);
        if (decision.verdict !== 'noOpinion') return decision;
        if (decision.reason !== '') reasons.push(decision.reason);
      }
      return {
        verdict: 'noOpinion',
        reason: reasons.join('\n'),
        ...(errors.length > 0 ? { error: errors.join('\n') } : {}),
      };
    },
    async rulesFor(user, namespace) {
      const all = await Promise.all(authorizers.map((authorizer) => authorizer.rulesFor(user, namespace)));
      const errors = all.flatMap((rules) => rules.evaluationError ?? []);
      return {
        resourceRules: all.flatMap((rules) => rules.resourceRules),
        nonResourceRules: all.flatMap((rules) => rules.nonResourceRules),
        incomplete: all.some((rules) => rules.incomplete),
        ...(errors.length > 0 ? { evaluationError: errors.join('\n') } : {}),
      };
    },
  };
}

import type { Authorizer } from './authorizer.ts';

/** Group whose members may do everything, independent of roles. */
export const MASTERS = 'system:masters';

/** Allows members of `system:masters` everything. Called first, so that an administrator can repair the roles. */
export function createMastersAuthorizer(): Authorizer {
  const everything = {
    resourceRules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }],
    nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
    incomplete: false,
  };
  return {
    authorize: ({ user }) => ({
      verdict: user.groups.includes(MASTERS) ? 'allow' : 'noOpinion',
      reason: '',
    }),
    rulesFor: (user) =>
      user.groups.includes(MASTERS)
        ? everything
        : { resourceRules: [], nonResourceRules: [], incomplete: false },
  };
}

/** An authenticated user, as authentication.k8s.io/v1 UserInfo. */
export interface User {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

export const ANONYMOUS: User = { name: 'system:anonymous', groups: ['system:unauthenticated'] };

export const AUTHENTICATED_GROUP = 'system:authenticated';

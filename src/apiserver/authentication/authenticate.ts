import { ANONYMOUS, type Authenticator, type RequestCredentials, type User } from './authenticator.ts';

/**
 * Asks the authenticators in their order; the first user wins. A request without credentials is the anonymous user's;
 * what that user may do, the authorizer decides. Throws StatusError 401 for credentials that are not valid.
 */
export async function authenticate(
  authenticators: readonly Authenticator[],
  credentials: RequestCredentials,
): Promise<User> {
  for (const authenticator of authenticators) {
    const user = await authenticator.authenticate(credentials);
    if (user) return user;
  }
  return ANONYMOUS;
}

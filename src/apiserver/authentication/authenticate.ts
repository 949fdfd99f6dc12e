import type { Authenticator, RequestCredentials } from './authenticator.ts';
import { ANONYMOUS, type User } from './user.ts';

/**
 * Calls the authenticators in order; the first user wins. A request without credentials belongs to the anonymous user,
 * whose rights the authorizer decides. Throws StatusError 401 for invalid credentials.
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

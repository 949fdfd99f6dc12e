import type { TokenIssuer } from '../service-account-tokens.ts';
import { StatusError } from '../status-error.ts';
import type { Authenticator } from './authenticator.ts';

/** Recognises the service-account tokens of this server. Refuses an invalid bearer token with 401. */
export function createTokenAuthenticator(tokens: TokenIssuer): Authenticator {
  return {
    authenticate({ headers }) {
      const bearer = /^Bearer +(\S+)$/i.exec(headers['authorization'] ?? '');
      if (!bearer) return null;
      const user = tokens.verify(bearer[1] ?? '');
      if (!user) throw new StatusError(401, 'Unauthorized', 'Unauthorized');
      return user;
    },
  };
}

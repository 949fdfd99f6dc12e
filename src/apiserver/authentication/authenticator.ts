import type { AuthorizationAttributes } from '../authorization/authorizer.ts';
import type { User } from './user.ts';

/** The subject of a client certificate signed by an authority of this server. */
export interface ClientCertificate {
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** SHA-256 over the DER form, in hexadecimal with colons. */
  readonly fingerprint: string;
}

/** The credentials in a request. */
export interface RequestCredentials {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Null without a certificate, or with a certificate of another authority. */
  readonly certificate: ClientCertificate | null;
}

/**
 * Recognises one kind of credentials. Returns null for credentials of other kinds: the next authenticator is called.
 * Throws StatusError 401 for invalid credentials of its kind.
 */
export interface Authenticator {
  authenticate(credentials: RequestCredentials): User | null | Promise<User | null>;
}

/**
 * Replaces the user of a request that impersonates another (`Impersonate-User`, `--as`). `request`: the attributes of
 * the request. Throws StatusError 403 if that is not allowed, 400 for headers that do not name a user.
 */
export interface Impersonator {
  impersonate(
    user: User,
    headers: Readonly<Record<string, string | undefined>>,
    request: AuthorizationAttributes,
  ): User | Promise<User>;
}

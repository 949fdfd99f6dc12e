import type { AuthorizationAttributes } from '../authorization/authorizer.ts';

/** An authenticated user, as authentication.k8s.io/v1 UserInfo has it. */
export interface User {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

/** The subject of a client certificate that an authority of this server has signed. */
export interface ClientCertificate {
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** SHA-256 over the DER form, in hexadecimal with colons. */
  readonly fingerprint: string;
}

/** What a request shows of its sender. */
export interface RequestCredentials {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** Null without a certificate, or with one of another authority. */
  readonly certificate: ClientCertificate | null;
}

/**
 * Recognises one kind of credentials. Null: these credentials are not of this kind, the next authenticator is asked.
 * Throws StatusError 401 for credentials of its kind that are not valid.
 */
export interface Authenticator {
  authenticate(credentials: RequestCredentials): User | null | Promise<User | null>;
}

export const ANONYMOUS: User = { name: 'system:anonymous', groups: ['system:unauthenticated'] };
export const AUTHENTICATED_GROUP = 'system:authenticated';

/**
 * Changes the user that a request acts as (`Impersonate-User`, `--as`). `request`: what the request is about. Throws
 * StatusError 403 where that is not allowed, 400 for headers that name no user.
 */
export interface Impersonator {
  impersonate(
    user: User,
    headers: Readonly<Record<string, string | undefined>>,
    request: AuthorizationAttributes,
  ): User | Promise<User>;
}

import type { Authenticator } from './authenticator.ts';
import { AUTHENTICATED_GROUP } from './user.ts';

/** Takes the user's name and groups from the subject of a client certificate (common name, organizations). */
export function createCertificateAuthenticator(): Authenticator {
  return {
    authenticate({ certificate }) {
      if (!certificate) return null;
      return {
        name: certificate.commonName,
        groups: [...certificate.organizations, AUTHENTICATED_GROUP],
        extra: { 'authentication.kubernetes.io/credential-id': [`X509SHA256=${certificate.fingerprint}`] },
      };
    },
  };
}

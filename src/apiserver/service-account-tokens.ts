import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { timestamp } from '../kube/timestamp.ts';
import type { Clock } from '../lib/clock.ts';
import type { User } from './authentication/authenticator.ts';
import { type ApiObject, at, isObject, type JsonObject, listAt, textAt } from './object.ts';

export interface TokenIssuer {
  /** Answers a TokenRequest for a service account: the request with its status. */
  issue(account: ApiObject, request: JsonObject): object;
  /** Whom a token stands for, or null when it is forged, expired or not ours. */
  verify(token: string, audiences?: readonly string[]): User | null;
}

const ISSUER = 'https://kubernetes.default.svc.cluster.local';
const DEFAULT_SECONDS = 3600;
const LEAST_SECONDS = 600;

/** Issues and checks service-account tokens (KEP-1205): JWTs signed with ES256. `key`: an EC P-256 private key, PEM;
 * `uidOf`: of a stored object. */
export function createTokenIssuer(
  key: string,
  clock: Clock,
  randomUuid: () => string,
  uidOf: (collection: string, key: string) => string | undefined,
): TokenIssuer {
  const privateKey = createPrivateKey(key);
  const publicKey: KeyObject = createPublicKey(privateKey);
  const seconds = () => Math.floor(clock.now() / 1000);
  return {
    issue(account, request) {
      const spec = isObject(request['spec']) ? request['spec'] : {};
      const asked =
        typeof spec['expirationSeconds'] === 'number' ? spec['expirationSeconds'] : DEFAULT_SECONDS;
      const lifetime = Math.max(LEAST_SECONDS, asked);
      const audiences =
        Array.isArray(spec['audiences']) && spec['audiences'].length > 0 ? spec['audiences'] : [ISSUER];
      const { namespace = '', name = '', uid = '' } = account.metadata;
      const bound = spec['boundObjectRef'];
      const now = seconds();
      const token = encode(privateKey, {
        iss: ISSUER,
        aud: audiences,
        sub: `system:serviceaccount:${namespace}:${name}`,
        jti: randomUuid(),
        iat: now,
        nbf: now,
        exp: now + lifetime,
        'kubernetes.io': {
          namespace,
          serviceaccount: { name, uid },
          ...(isObject(bound) && bound['kind'] === 'Pod'
            ? { pod: { name: bound['name'], uid: bound['uid'] } }
            : {}),
        },
      });
      return {
        kind: 'TokenRequest',
        apiVersion: 'authentication.k8s.io/v1',
        metadata: { name, namespace },
        spec: { ...spec, audiences, expirationSeconds: lifetime },
        status: {
          token,
          expirationTimestamp: timestamp((now + lifetime) * 1000),
        },
      };
    },
    verify(token, audiences = [ISSUER]) {
      const claims = decode(publicKey, token);
      if (!claims || claims['iss'] !== ISSUER) return null;
      const { exp, sub } = claims;
      if (typeof exp !== 'number' || exp <= seconds() || typeof sub !== 'string') return null;
      if (!listAt(claims, 'aud').some((audience) => audiences.includes(String(audience)))) return null;
      // A token ends with its account, and with the pod that it was made for.
      const namespace = textAt(claims, 'kubernetes.io', 'namespace');
      for (const [collection, bound] of [
        ['serviceaccounts', 'serviceaccount'],
        ['pods', 'pod'],
      ] as const) {
        const reference = at(claims, 'kubernetes.io', bound);
        if (reference === undefined) continue;
        const uid = uidOf(collection, `${namespace}/${textAt(reference, 'name')}`);
        if (uid === undefined || uid !== textAt(reference, 'uid')) return null;
      }
      return {
        name: sub,
        uid: String(at(claims, 'kubernetes.io', 'serviceaccount', 'uid') ?? ''),
        groups: ['system:serviceaccounts', `system:serviceaccounts:${namespace}`, 'system:authenticated'],
      };
    },
  };
}

const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

function encode(key: KeyObject, claims: object): string {
  const text = `${encoded({ alg: 'ES256', typ: 'JWT' })}.${encoded(claims)}`;
  const signature = sign('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' });
  return `${text}.${signature.toString('base64url')}`;
}

function decode(key: KeyObject, token: string): JsonObject | null {
  const [header = '', payload = '', signature = '', ...rest] = token.split('.');
  if (rest.length > 0 || signature === '') return null;
  const valid = verify(
    'sha256',
    Buffer.from(`${header}.${payload}`),
    { key, dsaEncoding: 'ieee-p1363' },
    Buffer.from(signature, 'base64url'),
  );
  if (!valid) return null;
  const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'));
  return isObject(claims) ? claims : null;
}

import { createHash, createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { timestamp } from '../kube/timestamp.ts';
import type { Clock } from '../lib/clock.ts';
import { ownMember } from '../lib/own-member.ts';
import type { User } from './authentication/user.ts';
import { type ApiObject, at, isObject, type JsonObject, textAt } from './object.ts';
import { badRequest, conflict, invalid, invalidObject, notFound } from './status-error.ts';

export interface TokenIssuer {
  readonly issuer: string;
  /** Public keys that verify the tokens (RFC 7517). */
  readonly keySet: { readonly keys: readonly Readonly<Record<string, string>>[] };
  /**
   * Answers a TokenRequest for a service account: returns the request with its status. Throws StatusError 400, 404,
   * 409, 422.
   */
  issue(account: ApiObject, request: JsonObject): JsonObject;
  /** Returns the token of a Secret of type kubernetes.io/service-account-token, valid as long as the Secret. */
  issueForSecret(account: ApiObject, secretName: string): string;
  /** Returns the user of a token; null if it is forged, expired, for other audiences, or its bound object is gone. */
  verify(token: string, audiences?: readonly string[]): User | null;
  /** Returns the audiences of a valid token. */
  audiencesOf(token: string): readonly string[];
}

export const SERVICE_ACCOUNT_SECRET = 'kubernetes.io/service-account-token';
const LEGACY_ISSUER = 'kubernetes/serviceaccount';
const DEFAULT_SECONDS = 3600;
const MIN_SECONDS = 600;
const MAX_SECONDS = 2 ** 32;
/**
 * Lifetime that the ServiceAccount admission plugin requests in pods: these tokens remain valid longer for clients that
 * never read the file again.
 */
const POD_SECONDS = 3607;
const EXTENDED_SECONDS = 365 * 24 * 3600;

/** Collections of the objects that a token may be bound to, by kind. */
const BOUND_KINDS: Readonly<Record<string, { collection: string; namespaced: boolean }>> = {
  Pod: { collection: 'pods', namespaced: true },
  Secret: { collection: 'secrets', namespaced: true },
  Node: { collection: 'nodes', namespaced: false },
};

/**
 * Issues and verifies service-account tokens (KEP-1205, KEP-4193): JWTs signed with ES256. `key`: an EC P-256 private
 * key, PEM; `get` returns a stored object.
 */
export function createTokenIssuer(
  key: string,
  issuer: string,
  clock: Clock,
  randomUuid: () => string,
  get: (collection: string, key: string) => ApiObject | undefined,
): TokenIssuer {
  const privateKey = createPrivateKey(key);
  const publicKey: KeyObject = createPublicKey(privateKey);
  const keyId = createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest('base64url');
  const jwk = publicKey.export({ format: 'jwk' });
  const seconds = () => Math.floor(clock.now() / 1000);
  const references = { get };
  return {
    issuer,
    keySet: {
      keys: [
        { use: 'sig', kty: 'EC', kid: keyId, crv: 'P-256', alg: 'ES256', x: jwk.x ?? '', y: jwk.y ?? '' },
      ],
    },
    issue(account, request) {
      const spec = isObject(request['spec']) ? request['spec'] : {};
      const asked = spec['expirationSeconds'];
      const lifetime = typeof asked === 'number' ? asked : DEFAULT_SECONDS;
      checkLifetime(lifetime);
      const given = spec['audiences'];
      const audiences = Array.isArray(given) && given.length > 0 ? given : [issuer];
      const { namespace = '', name = '', uid = '' } = account.metadata;
      const now = seconds();
      const own = audiences.length === 1 && audiences[0] === issuer;
      const bound = boundClaims(references, account, spec['boundObjectRef']);
      const extended = lifetime === POD_SECONDS && own && bound['pod'] !== undefined;
      const token = encode(privateKey, keyId, {
        iss: issuer,
        aud: audiences,
        sub: `system:serviceaccount:${namespace}:${name}`,
        jti: randomUuid(),
        iat: now,
        nbf: now,
        exp: now + (extended ? EXTENDED_SECONDS : lifetime),
        'kubernetes.io': {
          namespace,
          serviceaccount: { name, uid },
          ...bound,
          ...(extended ? { warnafter: now + lifetime } : {}),
        },
      });
      return {
        ...request,
        kind: 'TokenRequest',
        apiVersion: 'authentication.k8s.io/v1',
        metadata: { name, namespace, uid, creationTimestamp: timestamp(now * 1000) },
        spec: {
          audiences,
          expirationSeconds: lifetime,
          boundObjectRef: isObject(spec['boundObjectRef']) ? spec['boundObjectRef'] : null,
        },
        status: { token, expirationTimestamp: timestamp((now + lifetime) * 1000) },
      };
    },
    issueForSecret(account, secretName) {
      const { namespace = '', name = '', uid = '' } = account.metadata;
      return encode(privateKey, keyId, {
        iss: LEGACY_ISSUER,
        sub: `system:serviceaccount:${namespace}:${name}`,
        'kubernetes.io/serviceaccount/namespace': namespace,
        'kubernetes.io/serviceaccount/secret.name': secretName,
        'kubernetes.io/serviceaccount/service-account.name': name,
        'kubernetes.io/serviceaccount/service-account.uid': uid,
      });
    },
    verify(token, audiences = [issuer]) {
      const claims = decode(publicKey, token);
      if (!claims) return null;
      if (claims['iss'] === LEGACY_ISSUER) {
        return audiences.includes(issuer) ? legacyUser(references, claims, token) : null;
      }
      if (claims['iss'] !== issuer) return null;
      const { exp, nbf } = claims;
      if (typeof exp !== 'number' || exp <= seconds()) return null;
      if (typeof nbf === 'number' && nbf > seconds() + 60) return null;
      if (!audiencesIn(claims).some((audience) => audiences.includes(audience))) return null;
      return boundUser(references, claims);
    },
    audiencesOf(token) {
      const claims = decode(publicKey, token);
      if (!claims) return [];
      return claims['iss'] === LEGACY_ISSUER ? [issuer] : audiencesIn(claims);
    },
  };
}

interface References {
  readonly get: (collection: string, key: string) => ApiObject | undefined;
}

function checkLifetime(seconds: number): void {
  const problem =
    seconds < MIN_SECONDS
      ? 'may not specify a duration less than 10 minutes'
      : seconds > MAX_SECONDS
        ? 'may not specify a duration larger than 2^32 seconds'
        : null;
  if (problem === null) return;
  throw invalidObject({ group: 'authentication.k8s.io', kind: 'TokenRequest', plural: 'tokenrequests' }, '', [
    invalid('spec.expirationSeconds', seconds, problem),
  ]);
}

/** Returns the claims about the object to which a token is bound; for a pod, also its node. */
function boundClaims({ get }: References, account: ApiObject, reference: unknown): JsonObject {
  if (!isObject(reference)) return {};
  const kind = textAt(reference, 'kind');
  const name = textAt(reference, 'name');
  const bound = ownMember(BOUND_KINDS, kind);
  const apiVersion = textAt(reference, 'apiVersion');
  if (!bound || apiVersion !== 'v1')
    throw badRequest(
      `cannot bind token to object of type ${apiVersion === 'v1' ? '/v1' : apiVersion}, Kind=${kind}`,
    );
  const { namespace = '' } = account.metadata;
  const object = get(bound.collection, `${bound.namespaced ? namespace : ''}/${name}`);
  const names = { group: '', kind, plural: bound.collection };
  if (!object) throw notFound(names, name);
  if (kind === 'Pod' && textAt(object, 'spec', 'serviceAccountName') !== account.metadata.name) {
    throw badRequest(
      `cannot bind token for serviceaccount ${JSON.stringify(account.metadata.name)} to pod running with different serviceaccount name.`,
    );
  }
  const uid = textAt(reference, 'uid');
  if (uid !== '' && uid !== object.metadata.uid) {
    throw conflict(
      names,
      name,
      `the UID in the bound object reference (${uid}) does not match the UID in record. The object might have been deleted and then recreated`,
    );
  }
  const claim = { name, uid: object.metadata.uid ?? '' };
  if (kind !== 'Pod') return { [kind.toLowerCase()]: claim };
  const nodeName = textAt(object, 'spec', 'nodeName');
  const node = nodeName === '' ? undefined : get('nodes', `/${nodeName}`);
  return {
    pod: claim,
    ...(nodeName === ''
      ? {}
      : { node: { name: nodeName, ...(node?.metadata.uid ? { uid: node.metadata.uid } : {}) } }),
  };
}

/**
 * Returns the user of a bound token; null once the account, the pod, the secret or (without a pod) the node is gone.
 */
function boundUser({ get }: References, claims: JsonObject): User | null {
  const own = claims['kubernetes.io'];
  const namespace = textAt(own, 'namespace');
  const exists = (collection: string, key: string, uid: string) => get(collection, key)?.metadata.uid === uid;
  const name = textAt(own, 'serviceaccount', 'name');
  const uid = textAt(own, 'serviceaccount', 'uid');
  if (!exists('serviceaccounts', `${namespace}/${name}`, uid)) return null;
  const extra: Record<string, string[]> = {};
  if (textAt(claims, 'jti') !== '')
    extra['authentication.kubernetes.io/credential-id'] = [`JTI=${textAt(claims, 'jti')}`];
  const pod = at(own, 'pod');
  if (isObject(pod)) {
    if (!exists('pods', `${namespace}/${textAt(pod, 'name')}`, textAt(pod, 'uid'))) return null;
    extra['authentication.kubernetes.io/pod-name'] = [textAt(pod, 'name')];
    extra['authentication.kubernetes.io/pod-uid'] = [textAt(pod, 'uid')];
  }
  const secret = at(own, 'secret');
  if (isObject(secret) && !exists('secrets', `${namespace}/${textAt(secret, 'name')}`, textAt(secret, 'uid')))
    return null;
  const node = at(own, 'node');
  if (isObject(node)) {
    if (!isObject(pod) && !exists('nodes', `/${textAt(node, 'name')}`, textAt(node, 'uid'))) return null;
    extra['authentication.kubernetes.io/node-name'] = [textAt(node, 'name')];
    if (textAt(node, 'uid') !== '') extra['authentication.kubernetes.io/node-uid'] = [textAt(node, 'uid')];
  }
  return accountUser(namespace, name, uid, extra);
}

/** Returns the user of a token in a Secret; the Secret must still contain it, and its account must exist. */
function legacyUser({ get }: References, claims: JsonObject, token: string): User | null {
  const claim = (name: string) => textAt(claims, `kubernetes.io/serviceaccount/${name}`);
  const namespace = claim('namespace');
  const secret = get('secrets', `${namespace}/${claim('secret.name')}`);
  const kept = Buffer.from(textAt(secret?.['data'], 'token'), 'base64').toString('utf8');
  if (!secret || secret.metadata.deletionTimestamp !== undefined || kept !== token) return null;
  const name = claim('service-account.name');
  const uid = claim('service-account.uid');
  const account = get('serviceaccounts', `${namespace}/${name}`);
  if (account?.metadata.uid !== uid || account.metadata.deletionTimestamp !== undefined) return null;
  return accountUser(namespace, name, uid, {});
}

const accountUser = (
  namespace: string,
  name: string,
  uid: string,
  extra: Readonly<Record<string, readonly string[]>>,
): User => ({
  name: `system:serviceaccount:${namespace}:${name}`,
  uid,
  groups: ['system:serviceaccounts', `system:serviceaccounts:${namespace}`, 'system:authenticated'],
  ...(Object.keys(extra).length > 0 ? { extra } : {}),
});

function audiencesIn(claims: JsonObject): string[] {
  const { aud } = claims;
  return Array.isArray(aud) ? aud.map(String) : [];
}

const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

function encode(key: KeyObject, keyId: string, claims: object): string {
  const text = `${encoded({ alg: 'ES256', kid: keyId, typ: 'JWT' })}.${encoded(claims)}`;
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

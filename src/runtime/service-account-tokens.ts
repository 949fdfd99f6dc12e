import type { Client } from '../kube/client.ts';
import type { Pod } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';

/** Returns a token of a pod's service account for an audience (undefined: the API server), valid for this long. */
export type TokenSource = (audience: string | undefined, expirationSeconds: number) => Promise<string>;

/** As upstream's token manager (pkg/kubelet/token): a token is replaced after this part of its life, or after a day. */
const REPLACED_AFTER = 0.8;
const MAX_AGE_MS = 24 * 3600 * 1000;

interface Held {
  readonly token: string;
  readonly until: number;
}

/** Creates a source of tokens that are bound to a pod: it asks for another one only when one has to be replaced. */
export function createTokenSource({
  client,
  pod,
  clock,
}: {
  readonly client: Client;
  readonly pod: () => Pod;
  readonly clock: Clock;
}): TokenSource {
  const held = new Map<string, Held>();
  return async (audience, expirationSeconds) => {
    const key = JSON.stringify([audience, expirationSeconds]);
    const known = held.get(key);
    const now = clock.now();
    if (known && now < known.until) return known.token;
    const { namespace = 'default', name, uid } = pod().metadata ?? {};
    const account = pod().spec?.serviceAccountName ?? 'default';
    const answer = (await client.request(
      'POST',
      `/api/v1/namespaces/${namespace}/serviceaccounts/${account}/token`,
      {
        apiVersion: 'authentication.k8s.io/v1',
        kind: 'TokenRequest',
        spec: {
          expirationSeconds,
          ...(audience ? { audiences: [audience] } : {}),
          boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name, uid },
        },
      },
    )) as { status?: { token?: string; expirationTimestamp?: string } };
    const { token = '', expirationTimestamp = '' } = answer.status ?? {};
    const lifeMs = Date.parse(expirationTimestamp) - now;
    if (lifeMs > 0) held.set(key, { token, until: now + Math.min(lifeMs * REPLACED_AFTER, MAX_AGE_MS) });
    return token;
  };
}

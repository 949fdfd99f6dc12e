import { type Client, hasReason } from '../kube/client.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import type { ImageReference } from './images/reference.ts';
import type { RegistryCredentials } from './images/registry.ts';

/** An entry of a Docker configuration: `auth` is base64 of "user:password". */
interface Entry {
  readonly auth?: string;
  readonly username?: string;
  readonly password?: string;
}

/**
 * Returns the credentials for an image's registry from a pod's imagePullSecrets: the matching entry with the longest
 * path, of the first secret. Missing secrets are skipped, as in the kubelet.
 */
export async function pullCredentials(
  client: Client,
  pod: Pod,
  reference: ImageReference,
): Promise<RegistryCredentials | null> {
  const found: { readonly path: string; readonly credentials: RegistryCredentials }[] = [];
  for (const { name } of pod.spec?.imagePullSecrets ?? []) {
    if (!name) continue;
    for (const [key, entry] of await readSecret(client, name, pod.metadata?.namespace ?? 'default')) {
      const place = key.replace(/^https?:\/\//, '').replace(/\/(v[12]\/?)?$/, '');
      const [host = '', ...path] = place.split('/');
      const registry = /^(index|registry-1)\.docker\.io$/.test(host) ? 'docker.io' : host;
      const prefix = path.join('/');
      const fits = prefix === '' || `${reference.repository}/`.startsWith(`${prefix}/`);
      const credentials = credentialsOf(entry);
      if (registry === reference.registry && fits && credentials) found.push({ path: prefix, credentials });
    }
  }
  return found.sort((a, b) => b.path.length - a.path.length)[0]?.credentials ?? null;
}

async function readSecret(client: Client, name: string, namespace: string): Promise<[string, Entry][]> {
  try {
    const { data = {} } = await client.get(RESOURCES.secrets, name, namespace);
    const text = (key: string) => Buffer.from(String(data[key] ?? ''), 'base64').toString('utf8') || '{}';
    // kubernetes.io/dockerconfigjson, and the older kubernetes.io/dockercfg.
    const { auths = {} } = JSON.parse(text('.dockerconfigjson')) as { auths?: Record<string, Entry> };
    return Object.entries({ ...(JSON.parse(text('.dockercfg')) as Record<string, Entry>), ...auths });
  } catch (error) {
    if (hasReason(error, 'NotFound') || error instanceof SyntaxError) return [];
    throw error;
  }
}

function credentialsOf({ auth, username, password }: Entry): RegistryCredentials | null {
  if (username !== undefined && password !== undefined) return { username, password };
  const text = Buffer.from(auth ?? '', 'base64').toString('utf8');
  const colon = text.indexOf(':');
  return colon < 0 ? null : { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

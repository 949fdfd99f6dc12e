import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFile } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { parseWarnings } from '../kube/api-warnings.ts';
import { readBody } from '../kube/client.ts';
import type { Transport } from '../kube/transport.ts';
import { clusterPaths, mayReadCluster } from './state.ts';

/** The paths of objects that the API server warned about when `up` applied them. */
const FILE = 'warned-objects.json';
/** Of thousands of objects with a warning, `status` asks about the first. */
const MAX_OBJECTS = 100;

/** Keeps the paths for `status`; those of earlier runs stay. */
export function keepWarned(cluster: string, paths: readonly string[]): void {
  if (paths.length === 0) return;
  const all = [...new Set([...keptPaths(cluster), ...paths])].slice(0, MAX_OBJECTS);
  replaceFile(fileOf(cluster), JSON.stringify(all), 0o600);
}

const fileOf = (cluster: string): string => join(clusterPaths(cluster).root, FILE);

function keptPaths(cluster: string): readonly string[] {
  const text = readOptionalFile(fileOf(cluster));
  if (text === null) return [];
  try {
    return JSON.parse(text) as string[];
  } catch {
    // Cut off by a full disk: the warnings are asked for again when the manifests are applied.
    rmSync(fileOf(cluster));
    return [];
  }
}

/**
 * Returns the warnings that still hold: the API server repeats them for a change of nothing, which it does not store. An
 * object that is gone has none.
 */
export async function presentWarnings(cluster: string, transport: Transport): Promise<string[]> {
  // A cluster of root, for an ordinary user.
  if (!mayReadCluster(cluster)) return [];
  const found = await Promise.all(
    keptPaths(cluster).map(async (path) => {
      const { status, headers, body } = await transport({
        method: 'PATCH',
        path: `${path}?dryRun=All&fieldManager=fairlead-status`,
        headers: { 'content-type': 'application/merge-patch+json' },
        body: '{}',
      });
      await readBody(body);
      return status === 200
        ? parseWarnings(headers['warning'] ?? '').map((text) => `${nameOf(path)}: ${text}`)
        : [];
    }),
  );
  return [...new Set(found.flat())];
}

/** Returns "services shop/web" for "/api/v1/namespaces/shop/services/web". */
function nameOf(path: string): string {
  const parts = path.split('/');
  const [plural = '', name = ''] = parts.slice(-2);
  const at = parts.indexOf('namespaces');
  const namespace = at > 0 && at < parts.length - 2 ? `${parts[at + 1]}/` : '';
  return `${plural} ${namespace}${name}`;
}

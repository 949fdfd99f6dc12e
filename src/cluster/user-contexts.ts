import { homedir } from 'node:os';
import { join } from 'node:path';
import { listContexts } from '../kube/kubeconfig.ts';
import { hasCode } from '../lib/errors.ts';
import { authorityName } from './authority-name.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** A context of a local cluster in a user's kubeconfigs. */
export interface UserContext {
  readonly cluster: string;
  /** "fairlead-default" */
  readonly name: string;
  readonly file: string;
  /** It is the current context. */
  readonly isCurrent: boolean;
}

/** Lists the contexts of local clusters in the files of KUBECONFIG, or in ~/.kube/config, as kubectl reads them. */
export function userContexts(environment: Environment): UserContext[] {
  const files = (environment['KUBECONFIG'] ?? '').split(':').filter(Boolean);
  if (files.length === 0) files.push(join(environment['HOME'] ?? homedir(), '.kube', 'config'));
  const prefix = authorityName({ name: '' });
  let current: string | null = null;
  const found = new Map<string, Omit<UserContext, 'isCurrent'>>();
  for (const file of files) {
    const contexts = readContexts(file);
    current ??= contexts.current;
    // The first file that has a context wins.
    for (const name of contexts.names)
      if (name.startsWith(prefix) && !found.has(name))
        found.set(name, { cluster: name.slice(prefix.length), name, file });
  }
  return [...found.values()].map((context) => ({ ...context, isCurrent: context.name === current }));
}

/** Finds the context of a cluster; null if the user has none. */
export const findContext = (cluster: string, environment: Environment): UserContext | null =>
  userContexts(environment).find((context) => context.cluster === cluster) ?? null;

function readContexts(file: string): ReturnType<typeof listContexts> {
  try {
    return listContexts(file);
  } catch (error) {
    if (hasCode((error as { cause?: unknown }).cause, 'ENOENT')) return { current: null, names: [] };
    throw error;
  }
}

import { authorityName } from './authority-name.ts';
import { contextsIn, kubeconfigFiles } from './kubeconfig-contexts.ts';

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
  const prefix = authorityName({ name: '' });
  let current: string | null = null;
  const found = new Map<string, Omit<UserContext, 'isCurrent'>>();
  for (const file of kubeconfigFiles(environment)) {
    const contexts = contextsIn(file);
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

import { homedir } from 'node:os';
import { join } from 'node:path';
import { listContexts } from '../kube/kubeconfig.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** A context in a file. */
export interface ContextPlace {
  readonly file: string;
  readonly context: string;
}

/** Returns the files of a user's kubeconfig, as kubectl reads them. */
export function kubeconfigFiles(environment: Environment): string[] {
  const files = (environment['KUBECONFIG'] ?? '').split(':').filter(Boolean);
  return files.length > 0 ? files : [join(environment['HOME'] ?? homedir(), '.kube', 'config')];
}

/** Lists the contexts of a file; none if it does not exist. */
export function contextsIn(file: string): ReturnType<typeof listContexts> {
  try {
    return listContexts(file);
  } catch (error) {
    if (hasCode((error as { cause?: unknown }).cause, 'ENOENT')) return { current: null, names: [] };
    throw error;
  }
}

/**
 * Finds a context as kubectl does: in `file`, else in the files of KUBECONFIG, else in ~/.kube/config; `context` null: the
 * current one. Null if there is none. Throws FairleadError if what was asked for does not exist.
 */
export function findKubeconfigContext(
  wanted: { readonly file: string | null; readonly context: string | null },
  environment: Environment,
): ContextPlace | null {
  const files = wanted.file === null ? kubeconfigFiles(environment) : [wanted.file];
  // A file that was asked for by name must exist.
  const read = wanted.file === null ? contextsIn : listContexts;
  const contents = files.map((file) => ({ file, ...read(file) }));
  const context =
    wanted.context ?? contents.map(({ current }) => current).find((one) => one !== null) ?? null;
  const found = contents.find(({ names }) => context !== null && names.includes(context));
  if (found && context !== null) return { file: found.file, context };
  if (wanted.file === null && wanted.context === null) return null;
  const known = contents.flatMap(({ names }) => names);
  throw new FairleadError(
    context === null ? `${files.join(', ')} has no current context` : `no such context: ${context}`,
    {
      op: 'read kubeconfig',
      code: 'bad-kubeconfig',
      object: files.join(', '),
      hint: known.length === 0 ? 'use --kubeconfig FILE' : `use --context ${known.join(', or --context ')}`,
    },
  );
}

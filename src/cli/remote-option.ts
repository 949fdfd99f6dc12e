import { existsSync } from 'node:fs';
import { authorityName } from '../cluster/authority-name.ts';
import { type ContextPlace, findKubeconfigContext } from '../cluster/kubeconfig-contexts.ts';
import { openRemoteCluster, type RemoteCluster } from '../cluster/remote-cluster.ts';
import { listClusters, rootStateRoot } from '../cluster/state.ts';
import { userContexts } from '../cluster/user-contexts.ts';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { UserRun } from './as-user.ts';
import { suggestion, text, usageError } from './options.ts';

/** The options of commands that also work on clusters whose agents run in pods. */
export const REMOTE_OPTIONS = {
  kubeconfig: text('FILE', 'the kubeconfig of a cluster whose agents run in pods'),
  context: text('NAME', 'a context of the kubeconfig; default: the current one'),
  'agent-namespace': text('NAMESPACE', "the namespace of the agents' pods; default: any"),
} as const;

export interface RemoteValues {
  readonly name: string;
  readonly kubeconfig: string | null;
  readonly context: string | null;
  readonly 'agent-namespace': string | null;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Opens the cluster that a command is for, if it is not a local one (null): with --kubeconfig or --context the one named so;
 * without options the current one of the files in KUBECONFIG; else the one of kubectl's current context, unless this machine
 * has clusters of its own. Throws FairleadError.
 */
export async function openRemote(
  command: string,
  { options, given }: { readonly options: RemoteValues; readonly given: ReadonlySet<string> },
  environment: Environment = process.env,
): Promise<RemoteCluster | null> {
  const { kubeconfig, context, 'agent-namespace': namespace } = options;
  const isRemote = kubeconfig !== null || context !== null;
  if (isRemote && given.has('name'))
    throw usageError(command, `use one of --name and --${kubeconfig === null ? 'context' : 'kubeconfig'}`);
  const isLocal = given.has('name') || Boolean(environment['FAIRLEAD_CLUSTER']);
  const chosen = isRemote || isLocal ? null : chosenByEnvironment(command, options.name, environment);
  if (!isRemote && chosen === null && (isLocal || hasLocalClusters(environment))) {
    if (namespace !== null)
      throw usageError(
        command,
        '--agent-namespace is for clusters whose agents run in pods: add --kubeconfig',
      );
    return null;
  }
  const place = chosen ?? findKubeconfigContext({ file: kubeconfig, context }, environment);
  if (place !== null)
    return await openRemoteCluster(place, namespace).catch((error: unknown) => {
      throw ofCluster(
        localInstead(error, place.context),
        place,
        chosen !== null && hasLocalClusters(environment),
      );
    });
  // Clusters of root: the error for them says how to use one.
  if (process.getuid?.() !== 0 && existsSync(rootStateRoot())) return null;
  throw new FairleadError('there is no local cluster, and no kubeconfig with a current context', {
    op: `fairlead ${command}`,
    code: 'no-cluster',
    hint: 'start a local cluster: fairlead up; or name a cluster: --kubeconfig FILE',
  });
}

/** Returns how an ordinary user runs a command that also works on clusters whose agents run in pods; see `openRemote`. */
export function ownCluster(
  command: string,
  { options, given }: { readonly options: RemoteValues; readonly given: ReadonlySet<string> },
  environment: Environment = process.env,
): UserRun | null {
  const { kubeconfig, context, name } = options;
  if (kubeconfig !== null || context !== null) return null;
  const isLocal = given.has('name') || Boolean(environment['FAIRLEAD_CLUSTER']);
  return isLocal || chosenByEnvironment(command, name, environment) === null ? { cluster: name } : null;
}

/**
 * Returns the current context of the files in KUBECONFIG; null: the variable is not set, or the context is that of the
 * local cluster `name`. Throws FairleadError if it is that of another local cluster.
 */
function chosenByEnvironment(command: string, name: string, environment: Environment): ContextPlace | null {
  if (!environment['KUBECONFIG']) return null;
  const place = findKubeconfigContext({ file: null, context: null }, environment);
  const prefix = authorityName({ name: '' });
  if (!place?.context.startsWith(prefix)) return place;
  const other = place.context.slice(prefix.length);
  if (other === name) return null;
  throw new FairleadError(`the context of KUBECONFIG is the local cluster ${other}, not ${name}`, {
    op: `fairlead ${command}`,
    code: 'bad-argument',
    hint: `use --name ${other}, --name ${name}, or --context ${place.context} if its agents run in pods`,
  });
}

/** Names the cluster that was meant in an error of opening it. `hasOther`: a local one could have been meant, too. */
function ofCluster(error: unknown, { context, file }: ContextPlace, hasOther: boolean): unknown {
  const message = messageOf(error);
  if (message.includes(context) && !hasOther) return error;
  const {
    op,
    code,
    hint: first,
  } = error instanceof FairleadError
    ? error
    : { op: 'open cluster', code: errorCode((error as NodeJS.ErrnoException).code ?? 'EIO'), hint: null };
  const instead = hasOther ? 'for a local cluster, use --name NAME (KUBECONFIG is set)' : null;
  const hint = [first, instead].filter(Boolean).join('; ');
  return new FairleadError(`the cluster of context ${context} (${file}): ${message}`, {
    ...{ op, code },
    ...(hint === '' ? {} : { hint }),
    cause: error,
  });
}

/** Names the local cluster whose context was given: its agents do not run in pods. */
function localInstead(error: unknown, context: string): unknown {
  const prefix = authorityName({ name: '' });
  if (!hasCode(error, 'not-running') || !context.startsWith(prefix)) return error;
  return new FairleadError(`no agents run in pods in the cluster of context ${context}`, {
    op: 'find agents',
    code: 'not-running',
    hint: `--name ${context.slice(prefix.length)}, if it is a local cluster`,
    cause: error,
  });
}

const hasLocalClusters = (environment: Environment): boolean =>
  listClusters().length > 0 || (process.getuid?.() !== 0 && userContexts(environment).length > 0);

/** Returns the nodes of a command that have an agent: the value of `--node`, or all. Throws FairleadError. */
export function selectRemoteNodes(
  command: string,
  only: string | null,
  { agents }: Pick<RemoteCluster, 'agents'>,
): string[] {
  const nodes = agents.map(({ node }) => node);
  if (only === null) return nodes;
  if (nodes.includes(only)) return [only];
  throw new FairleadError(`no agent runs on node ${only}${suggestion(only, nodes)}`, {
    op: `fairlead ${command}`,
    code: 'no-node',
    hint: `use one of ${nodes.join(', ')}`,
  });
}

import { type SpawnOptions, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { nodeResolvConf } from '../cluster/places.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, requireCluster } from '../cluster/state.ts';
import { spawnInNetns } from '../kernel/netns.ts';
import { readOptionalFolder } from '../kernel/optional-file.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { nodeNetns, outsideNetns } from '../network/topology.ts';
import { readControlGroups } from '../runtime/control-groups.ts';
import { prepareExec, prepareRuntime } from '../runtime/oci-runtime.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { suggestion, text } from './options.ts';

export const command = defineCommand({
  name: 'exec',
  summary: 'run a command in a pod, on a node or outside',
  description: [
    "Runs a command inside a pod, in a node's network, or as the client outside the cluster, with the caller's standard streams and terminal. Exits with the command's status.",
    'On nodes and outside, "fairlead" is this program; nodes resolve names through cluster DNS.',
  ],
  arguments: [
    {
      name: 'POD|node/NAME|outside',
      help: 'a pod (NAME or NAMESPACE/NAME), a node, or the client outside the cluster',
    },
  ],
  program: 'COMMAND…',
  options: {
    container: text('CONTAINER', 'a container of the pod; default: the first', { short: 'c' }),
    name: NAME_OPTION,
  },
  examples: [
    'exec client -- fairlead request http://hello --count 300',
    'exec node/node-2 -- ip route',
    'exec outside -- curl http://172.30.0.11:30080',
  ],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [target = ''], program }) {
    requireOwner('exec', options.name);
    const state = requireCluster(options.name);
    const [file = '', ...args] = program;
    const child =
      target === 'outside'
        ? spawnInNetns(outsideNetns(state.name), file, args, placeOptions(state))
        : target.startsWith('node/')
          ? spawnOnNode(state, nodeOf(state, target.slice(5)), program)
          : spawnInPod(state, target, options.container ?? '', program);
    return new Promise((resolve, reject) => {
      child.on('error', (error) =>
        reject(
          new FairleadError(`cannot run ${file}`, {
            op: 'fairlead exec',
            code: hasCode(error, 'ENOENT') ? 'ENOENT' : 'EIO',
            cause: error,
          }),
        ),
      );
      // The terminal sends Ctrl-C to the command too: this process waits for the command to exit.
      process.on('SIGINT', () => {});
      child.on('exit', (code, signal) => resolve(code ?? (signal ? 130 : 1)));
    });
  },
});

function placeOptions(state: ClusterState): SpawnOptions {
  const path = process.env['PATH'] ?? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
  return { stdio: 'inherit', env: { ...process.env, PATH: `${clusterPaths(state.name).bin}:${path}` } };
}

/** Runs a program in the node's network, with a resolv.conf that names its DNS, in a new mount namespace. */
function spawnOnNode(state: ClusterState, node: string, program: readonly string[]) {
  const script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"';
  const resolvConf = join(clusterPaths(state.name).node(node), 'resolv.conf');
  replaceFile(resolvConf, nodeResolvConf(state), 0o644);
  return spawnInNetns(
    nodeNetns(state.name, node),
    'unshare',
    ['--mount', '--propagation', 'slave', '/bin/sh', '-c', script, 'sh', resolvConf, ...program],
    placeOptions(state),
  );
}

function nodeOf(state: ClusterState, name: string): string {
  if (state.nodes.some((node) => node.name === name)) return name;
  throw new FairleadError(
    `no such node: ${name}${suggestion(
      name,
      state.nodes.map((node) => node.name),
    )}`,
    {
      op: 'fairlead exec',
      code: 'no-node',
      hint: `use one of ${state.nodes.map((node) => `node/${node.name}`).join(', ')}`,
    },
  );
}

function spawnInPod(state: ClusterState, target: string, container: string, program: readonly string[]) {
  const [namespace, name] = target.includes('/') ? target.split('/') : ['default', target];
  for (const node of state.nodes) {
    const folder = join(clusterPaths(state.name).node(node.name), 'state');
    for (const uid of readOptionalFolder(join(folder, 'pods'))) {
      const pod = readJson(join(folder, 'pods', uid, 'pod.json')) as {
        metadata?: { name?: string; namespace?: string; deletionTimestamp?: string };
        spec?: { containers?: { name: string }[] };
      } | null;
      if (pod?.metadata?.name !== name || pod?.metadata?.namespace !== namespace) continue;
      const names = (pod?.spec?.containers ?? []).map((one) => one.name);
      const wanted = container || names[0] || '';
      if (!names.includes(wanted)) {
        throw new FairleadError(`no such container in pod ${target}: ${wanted}${suggestion(wanted, names)}`, {
          op: 'fairlead exec',
          code: 'no-container',
          hint: `use -c with one of ${names.join(', ')}`,
        });
      }
      const home = join(folder, 'pods', uid, 'containers', wanted);
      const saved = readJson(join(home, 'state.json')) as { id?: string; attempt?: number } | null;
      if (!saved?.id)
        throw new FairleadError(`container ${wanted} of pod ${target} has not started`, {
          op: 'fairlead exec',
          code: 'not-running',
        });
      const paths = prepareRuntime(folder, readControlGroups());
      const tty = process.stdin.isTTY && process.stdout.isTTY;
      const running = { id: saved.id, bundle: join(home, `run-${saved.attempt ?? 0}`) };
      const { columns: width, rows: height } = process.stdout;
      const { args, remove } = prepareExec(paths, running, program, tty, tty ? { width, height } : null);
      return spawn(paths.program, args, { stdio: 'inherit' }).on('exit', remove);
    }
  }
  throw new FairleadError(`no such pod on any node: ${target}`, {
    op: 'fairlead exec',
    code: 'no-pod',
    hint: 'kubectl get pods -A; write NAMESPACE/POD for a pod outside the namespace "default"',
  });
}

function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}

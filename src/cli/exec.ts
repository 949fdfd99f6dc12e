import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { nodeResolvConf } from '../cluster/places.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, requireCluster } from '../cluster/state.ts';
import { spawnInNetns } from '../kernel/netns.ts';
import { readOptionalFile, readOptionalFolder } from '../kernel/optional-file.ts';
import { signalProcess } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { nodeNetns, outsideNetns } from '../network/topology.ts';
import { readControlGroups } from '../runtime/control-groups.ts';
import { prepareExec, prepareRuntime, readIdentity } from '../runtime/oci-runtime.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, suggestion, text } from './options.ts';

export const command = defineCommand({
  name: 'exec',
  summary: 'run a command in a pod, on a node or outside',
  description: [
    "Runs a command inside a pod, in a node's network, or as the client outside the cluster, with the caller's standard streams, and in a terminal if the caller has one. Exits with the command's status; 127 if there is no such program, 126 if it cannot be run.",
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
    stdin: flag('standard input is passed on; always so', { short: 'i' }),
    tty: flag('in a terminal; always so if standard input and output are one', { short: 't' }),
    name: NAME_OPTION,
  },
  examples: [
    'exec client -- fairlead request http://hello --count 300',
    'exec -it client sh',
    'exec node/node-2 -- ip route',
    'exec outside -- curl http://172.30.0.11:30080',
  ],
  asUser: ({ options }) => ({ cluster: options.name }),
  async run({ options, args: [target = ''], program }, output) {
    requireOwner('exec', options.name);
    const state = requireCluster(options.name);
    if (options.tty && !hasTerminal())
      output.err('fairlead: -t has no effect: standard input and output are not a terminal\n');
    const [file = '', ...args] = program;
    const start = (): Started =>
      target === 'outside'
        ? startedAs(spawnInNetns(outsideNetns(state.name), file, args, placeOptions(state)))
        : target.startsWith('node/')
          ? startedAs(spawnOnNode(state, nodeOf(state, target.slice(5)), program))
          : spawnInPod(state, target, options.container ?? '', program);
    const { child, failure, signal } = start();
    // Ctrl-C reaches the command from the terminal, too; other programs send signals to this process only.
    const passOn = (name: NodeJS.Signals) => {
      if (name !== 'SIGINT' || !process.stdin.isTTY) signal(name);
    };
    const end = await new Promise<Error | number>((resolve) => {
      child.on('error', resolve);
      // This process waits for the command to exit.
      for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, passOn);
      child.on('exit', (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 1)));
    });
    if (typeof end !== 'number') {
      output.err(`fairlead: cannot run ${file}: ${messageOf(end)}\n`);
      return hasCode(end, 'ENOENT') ? 127 : 126;
    }
    const reason = failure?.() ?? null;
    // crun has printed it too.
    if (reason === null) return end;
    return MISSING.test(reason) ? 127 : 126;
  },
});

interface Started {
  readonly child: ChildProcess;
  /** Sends a signal to the command. */
  signal(name: NodeJS.Signals): void;
  /** After the end: the reason why the program could not be started; null: it ran. */
  failure?(): string | null;
}

const startedAs = (child: ChildProcess): Started => ({ child, signal: (name) => child.kill(name) });

/** crun's texts for a program that does not exist. */
const MISSING = /No such file or directory|not found in \$PATH/;

const hasTerminal = (): boolean => process.stdin.isTTY && process.stdout.isTTY;

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

function spawnInPod(
  state: ClusterState,
  target: string,
  container: string,
  program: readonly string[],
): Started {
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
      const tty = hasTerminal();
      const running = { id: saved.id, bundle: join(home, `run-${saved.attempt ?? 0}`) };
      const { columns: width, rows: height } = process.stdout;
      const size = tty ? { width, height } : null;
      const { args, remove, logFile, pidFile } = prepareExec(paths, running, program, tty, size);
      const child = spawn(paths.program, [`--log=${logFile}`, ...args], { stdio: 'inherit' });
      return {
        child,
        // crun does not pass signals on to a command without a terminal.
        signal(name) {
          const process = readIdentity(pidFile);
          if (process) signalProcess(process, name);
          else child.kill(name);
        },
        failure() {
          const message = readOptionalFile(logFile)?.trim() || null;
          remove();
          return message;
        },
      };
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

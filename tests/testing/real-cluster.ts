import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { join, resolve } from 'node:path';
import type { Pod } from '../../src/kube/types.ts';
import type { Result } from './cluster.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const PROGRAM = join(ROOT, 'dist', 'fairlead.mjs');
const NODE = [process.execPath, '--disable-warning=ExperimentalWarning'];
/** The same in pods of our image. */
const POD_NODE = '/opt/fairlead/node';
const POD_PROGRAM = '/opt/fairlead/dist/fairlead.mjs';

/** Where a program runs; pods are in the namespace default, and have our image. */
export type Place = 'workstation' | 'outside' | `node/${string}` | `pod/${string}`;

/** A cluster of real kubelets that the scripts in REAL_CLUSTER made, without CNI plugin, proxy and DNS. */
export interface RealCluster {
  readonly nodes: readonly string[];
  readonly kubeconfig: string;
  /** "https://172.28.77.1:6443", as nodes reach it. */
  readonly server: string;
  readonly podCidr: string;
  readonly dnsAddress: string;
  /** Returns an address of the network of the nodes. */
  addressOf(host: number): string;
  /** Returns the address of a node. */
  nodeAddress(node: string): string;
  /** Returns the file of the network namespace of a node, or of "outside". */
  netnsOf(place: string): string;
  /** Returns the file of the network namespace of a pod that runs. */
  netnsOfPod(pod: Pod): Promise<string>;
  kubectl(...words: readonly string[]): Promise<Result>;
  /** Returns kubectl's output; throws if it fails. */
  ask(...words: readonly string[]): Promise<string>;
  /** `kubectl apply` or `kubectl delete` of objects. */
  apply(yaml: string): Promise<string>;
  remove(yaml: string): Promise<string>;
  run(place: Place, ...words: readonly string[]): Promise<Result>;
  /** Runs a command of ours. */
  fairlead(place: Place, ...words: readonly string[]): Promise<Result>;
  /** Starts a command of ours as the leader of a process group, with pipes. */
  startFairlead(place: Exclude<Place, `pod/${string}`>, ...words: readonly string[]): ChildProcess;
  /** Starts a script in Node.js with its arguments, with pipes. */
  startScript(place: Place, script: string, ...words: readonly string[]): ChildProcess;
  /** Imports an OCI layout into the nodes' container runtimes. */
  importImage(layout: string): Promise<void>;
  /** Runs kube-proxy, a bridge plugin and CoreDNS, if they do not run yet. */
  startKubeProxy(mode: string): Promise<void>;
  /** Ends kube-proxy on all nodes; its rules stay. */
  stopKubeProxy(): Promise<void>;
  down(): Promise<void>;
}

/** A run of upstream's specs may take this long. */
const MAX_RUN_MS = 2_400_000;

/** Runs words with the functions of env.sh: `kc` (kubectl), `ns` (a namespace), `on` (a node). */
const IN_ENVIRONMENT = '. "$REAL_CLUSTER/env.sh"; "$@"';

/**
 * Shows a node only its own part of the machine's cgroup v2 hierarchy, as if it were a machine: programs that an agent
 * attaches to the root apply to the sockets of its node alone.
 */
const OWN_CONTROL_GROUPS = `
[ -e /sys/fs/cgroup/unified/cgroup.procs ] || exit 0
mkdir -p "/sys/fs/cgroup/unified/$1" && mount --bind "/sys/fs/cgroup/unified/$1" /sys/fs/cgroup/unified
`;

/** Why there can be no cluster here; null: nothing is missing. */
export function missingForRealCluster(): string | null {
  if (!process.env['REAL_CLUSTER']) return 'REAL_CLUSTER does not name a folder that makes a cluster';
  return process.env['KUBEBUILDER_ASSETS'] ? null : 'KUBEBUILDER_ASSETS is not set';
}

/** Makes a cluster. Throws with the script's output if that fails; then nothing remains. */
export async function startRealCluster(): Promise<RealCluster> {
  const away = Object.entries(networkInterfaces()).filter(([, list]) => list?.some((one) => !one.internal));
  if (away.length > 0)
    throw new Error(`packets could leave by ${away.map(([name]) => name)}: run this with ./test real`);
  const shown = await succeed(['eval', 'printf "%s\\n" "$W" "$NET" "$POD" "$SVC" "$NODES" "$P"']);
  const [folder = '', net = '', pod = '', service = '', count = '', prefix = ''] = shown.split('\n');
  const script = (name: string, ...words: readonly string[]) =>
    succeed([join(process.env['REAL_CLUSTER'] ?? '', name), ...words]);
  try {
    await script('up.sh');
  } catch (error) {
    await script('down.sh');
    throw error;
  }
  const nodes = Array.from({ length: Number(count) }, (_, i) => `n${i + 1}`);
  for (const node of nodes)
    await succeed(['on', node, 'sh', '-c', OWN_CONTROL_GROUPS, 'sh', `${prefix}-${node}`]);
  const kubectl = (...words: readonly string[]) => run(['kc', ...words]);
  const ask = (...words: readonly string[]) => succeed(['kc', ...words]);
  return {
    nodes,
    kubeconfig: join(folder, 'admin.conf'),
    server: `https://${net}.1:6443`,
    podCidr: `${pod}.0.0/16`,
    dnsAddress: `${service}.0.10`,
    addressOf: (host) => `${net}.${host}`,
    nodeAddress: (node) => `${net}.1${node.slice(1)}`,
    netnsOf: (place) => `/run/netns/${prefix}-${place === 'outside' ? 'out' : place}`,
    async netnsOfPod({ metadata, spec, status }) {
      const id = status?.containerStatuses?.[0]?.containerID?.replace('containerd://', '');
      const tasks = await succeed(['on', spec?.nodeName ?? '', 'ctr', '-n', 'k8s.io', 'tasks', 'ls']);
      // The nodes share the machine's process ids.
      const pid = tasks
        .split('\n')
        .find((line) => id && line.startsWith(id))
        ?.split(/\s+/)[1];
      if (!pid) throw new Error(`containerd runs no container of pod ${metadata?.name}:\n${tasks}`);
      return `/proc/${pid}/ns/net`;
    },
    kubectl,
    ask,
    apply: (yaml) => succeed(['kc', 'apply', '-f', '-'], yaml),
    remove: (yaml) => succeed(['kc', 'delete', '--timeout=120s', '-f', '-'], yaml),
    run: (place, ...words) => run([...wordsIn(place), ...words]),
    fairlead: (place, ...words) =>
      run([
        ...wordsIn(place),
        ...(place.startsWith('pod/') ? [POD_NODE, POD_PROGRAM] : [...NODE, PROGRAM]),
        ...words,
      ]),
    startFairlead(place, ...words) {
      const all = [...wordsIn(place), ...NODE, PROGRAM, ...words];
      return spawn('bash', ['-c', IN_ENVIRONMENT, 'bash', ...all], {
        env: environment(),
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true,
      });
    },
    startScript(place, text, ...words) {
      const node = place.startsWith('pod/') ? POD_NODE : process.execPath;
      return spawn('bash', ['-c', IN_ENVIRONMENT, 'bash', ...wordsIn(place), node, '-e', text, ...words], {
        env: environment(),
        stdio: ['pipe', 'pipe', 'pipe'],
      });
    },
    async importImage(layout) {
      for (const node of nodes) {
        const pipe = `tar -C '${layout}' -cf - . | on ${node} ctr -n k8s.io images import -`;
        await succeed(['eval', `set -o pipefail; ${pipe}`]);
      }
    },
    async startKubeProxy(mode) {
      await script('kubeproxy.sh', mode);
    },
    async stopKubeProxy() {
      await succeed(['stop', ...nodes.map((node) => `${node}/kube-proxy`)]);
    },
    async down() {
      await script('down.sh');
    },
  };
}

/** The name in the OCI layout that ./test builds. */
export const IMAGE = 'localhost/fairlead:test';

/** Imports our image, and installs all parts; the nodes are ready then. Returns the objects. */
export async function installFairlead(cluster: RealCluster, options: readonly string[]): Promise<string> {
  await cluster.importImage(process.env['FAIRLEAD_IMAGE'] ?? '');
  const { status, out, error } = await cluster.fairlead(
    'workstation',
    ...['manifests', '--for', 'all', '--image', IMAGE, '--api-server', cluster.server],
    ...['--cluster-cidr', cluster.podCidr, '--dns-address', cluster.dnsAddress, ...options],
  );
  if (status !== 0) throw new Error(`manifests: ${error}`);
  await cluster.apply(out);
  const rollout = ['rollout', 'status', '-n', 'kube-system', 'daemonset/fairlead', '--timeout=180s'];
  await cluster.ask(...rollout);
  await cluster.ask('wait', 'node', '--all', '--for=condition=Ready', '--timeout=120s');
  return out;
}

function wordsIn(place: Place): string[] {
  const [kind, name = ''] = place.split('/');
  switch (kind) {
    case 'workstation':
      return ['ns', 'cp'];
    case 'outside':
      return ['ns', 'out'];
    case 'node':
      return ['on', name];
    default:
      return ['kc', 'exec', '-i', name, '--'];
  }
}

const environment = () => ({
  ...process.env,
  BED: process.env['BED'] ?? process.env['KUBEBUILDER_ASSETS'],
  FAIRLEAD: ROOT,
  NODEJS: process.execPath,
});

/** Returns the output; throws if the command fails. */
async function succeed(words: readonly string[], input = ''): Promise<string> {
  const { status, out, error } = await run(words, input);
  if (status !== 0) throw new Error(`${words.join(' ')}: status ${status}\n${out}${error}`);
  return out;
}

function run(words: readonly string[], input = ''): Promise<Result> {
  return new Promise((resolve) => {
    const child = execFile(
      'bash',
      ['-c', IN_ENVIRONMENT, 'bash', ...words],
      { env: environment(), maxBuffer: 1 << 26, timeout: MAX_RUN_MS, killSignal: 'SIGKILL' },
      (error, out, text) => {
        const status = error ? (typeof error.code === 'number' ? error.code : 128) : 0;
        resolve({ status, out, error: text });
      },
    );
    child.stdin?.on('error', () => {}).end(input);
  });
}

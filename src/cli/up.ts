import { cpSync, existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { availableModes } from '../agent/dataplanes.ts';
import { authorityName } from '../cluster/authority-name.ts';
import { becomeReady } from '../cluster/bring-up.ts';
import { findControlPlane } from '../cluster/control-plane-programs.ts';
import {
  createCluster,
  freeApiPort,
  recordPlan,
  refuseLeftovers,
  resumeCluster,
} from '../cluster/creation.ts';
import { parsePools, poolsText } from '../cluster/load-balancer-pools.ts';
import { type ManifestObject, type Manifests, readManifests } from '../cluster/manifests.ts';
import { lockCluster, planAlone } from '../cluster/name-lock.ts';
import { occupiedNetworks } from '../cluster/occupied-networks.ts';
import { DEFAULT_MAX_PODS, MAX_MAX_PODS, MAX_NODES, maxPodsOf, planCluster } from '../cluster/plan.ts';
import type { Progress } from '../cluster/progress.ts';
import { changePublishedPorts, checkPublishedPorts } from '../cluster/published-ports.ts';
import { removeCluster } from '../cluster/removal.ts';
import { clusterModeObstacle, programWarnings, requireKernel } from '../cluster/requirements.ts';
import { restartTime } from '../cluster/restart-time.ts';
import { refuseMachineNetwork, refuseMode } from '../cluster/rootless/refusals.ts';
import { isRootless } from '../cluster/rootless/rootless.ts';
import { openUpListeners } from '../cluster/rootless/up-listeners.ts';
import { type PublishedPort, parsePublishedPorts } from '../cluster/service-port.ts';
import {
  type ClusterState,
  checkClusterName,
  clusterPaths,
  DEFAULT_CLUSTER,
  readCluster,
  readSupervision,
  writeCluster,
} from '../cluster/state.ts';
import { prepareStateFolder, releaseStateFolder } from '../cluster/state-folder.ts';
import { addContext, ownKubeconfig, sudoKubeconfig } from '../cluster/user-kubeconfig.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { listTopology } from '../network/topology.ts';
import { requireCatatonit } from '../runtime/catatonit.ts';
import { parseMirrors, type RegistryMirror } from '../runtime/images/registry-endpoint.ts';
import { configurationWords } from './cluster-configuration.ts';
import { defineCommand, type Output } from './command.ts';
import { renderError } from './error-text.ts';
import { wrapLines } from './help-text.ts';
import {
  choice,
  flag,
  type OptionTable,
  type Parsed,
  parseWords,
  text,
  texts,
  type Values,
  wholeNumber,
} from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { upAdvice } from './up-advice.ts';
import { version } from './version.ts';

const POLL_MS = 500;

export const OPTIONS = {
  file: texts('FILE', 'a manifest to apply, as a file, a folder of files or a URL; "-" is standard input', {
    short: 'f',
    main: true,
  }),
  config: text('FILE', 'a file with these options and manifests; see examples/fairlead.yaml'),
  nodes: wholeNumber(
    'N',
    [1, 1, MAX_NODES],
    'the number of nodes; adds nodes to a running cluster, or removes the last ones',
    {
      main: true,
    },
  ),
  mode: choice('MODE', availableModes(), 'nftables', 'the proxy mode of the nodes', { main: true }),
  'ip-family': choice('F', ['ipv4', 'ipv6', 'dual'], 'ipv4', 'the IP family', { main: true }),
  overlay: choice('O', ['routes', 'vxlan'], 'routes', 'how packets of pods reach other nodes'),
  name: text('NAME', "the cluster's name", { fallback: DEFAULT_CLUSTER }),
  detach: flag('return when everything is ready', { main: true }),
  'pod-cidr': text('C[,C]', 'networks of pods (10.244.0.0/16, fd00:10:244::/56)'),
  'max-pods': wholeNumber(
    'N',
    [DEFAULT_MAX_PODS, 1, MAX_MAX_PODS],
    'the maximum number of pods on a node; above 250, nodes get larger networks',
  ),
  'service-cidr': text('C[,C]', 'networks of Services (10.96.0.0/16, fd00:10:96::/112)'),
  'masquerade-all': flag("masquerade all traffic to cluster IPs (kube-proxy's masqueradeAll)"),
  'no-local-detection': flag('do not recognize traffic from pods (kube-proxy without clusterCIDR)'),
  'lb-pool': text(
    'C[,C]',
    "addresses of LoadBalancer Services: networks or ranges; or pools by name, as JSON in the form of the agent's loadBalancer.pools",
  ),
  'host-access': choice(
    'services',
    ['none', 'wire', 'services'],
    'none',
    "connect this machine to the cluster's wire, so that its programs (such as a browser) reach node ports and load-balancer addresses; with =services also cluster IPs and cluster DNS",
    { implied: 'wire', main: true },
  ),
  egress: flag(
    "let pods reach external networks through this machine's default routes; their connections have this machine's address",
    { main: true },
  ),
  'registry-mirror': texts(
    'HOST=URL',
    'ask this server for images of a registry first, such as docker.io=http://localhost:5000; replaces the mirrors of a running cluster; "none" removes all',
  ),
  publish: texts(
    'LOCALPORT:PORT/svc/NAME',
    'forward a TCP port of this machine (127.0.0.1 and ::1) to a Service, such as 8080:80/svc/web, or to Ingresses (8080:80/ingress), as long as the cluster runs; replaces the published ports of a running cluster; "none" closes all',
    { short: 'p', main: true },
  ),
  'control-plane': text(
    'DIR',
    'run etcd and kube-apiserver from this folder instead of the embedded control plane, with kube-controller-manager and kube-scheduler if it has them; such as "$KUBEBUILDER_ASSETS"',
  ),
  authorization: choice(
    'A',
    ['RBAC', 'AlwaysAllow'],
    'RBAC',
    'what users may do: what roles and bindings grant, or everything (every authenticated user)',
  ),
  'no-kubeconfig': flag('do not add the cluster to ~/.kube/config of the user (who may run sudo)'),
  timeout: wholeNumber('S', [60, 1, 86_400], 'how long to wait until the cluster is ready, in seconds'),
} as const satisfies OptionTable;

/** The options that a configuration file may set: properties of the cluster, not of the command. */
export const CONFIGURABLE: readonly string[] = [
  ...['name', 'nodes', 'mode', 'ip-family', 'overlay', 'pod-cidr', 'service-cidr', 'max-pods'],
  ...['masquerade-all', 'no-local-detection', 'lb-pool', 'host-access', 'egress', 'authorization'],
  'control-plane',
  'publish',
  'registry-mirror',
];

/** Options whose value may be an object in a configuration file, and then is JSON. */
export const STRUCTURED: readonly string[] = ['lb-pool'];

export const command = defineCommand({
  name: 'up',
  summary: 'start a local cluster and wait until it is ready',
  description: [
    'Starts a local cluster, applies the manifests, waits until their objects are ready, and prints commands to try next. Objects that cannot be applied are reported and do not stop the others; the exit status is then 1. Runs until Ctrl-C, which removes the cluster, or in the background with --detach. If the cluster is already running, it restarts stopped processes, adds or removes nodes for --nodes, and applies the manifests.',
  ],
  arguments: [],
  options: { ...OPTIONS, ...FORMAT_OPTIONS },
  asUser(typed) {
    const { options, given } = withConfiguration(typed);
    const { name, ports } = subjectOf(options, given);
    const existing = readCluster(name);
    if (existing === null) refuseMode(options.mode);
    const egress = existing?.egress ?? options.egress;
    refuseMachineNetwork({ hostAccess: existing?.hostAccess ?? options['host-access'], egress });
    return { cluster: name, creates: true, starts: true, egress, listen: () => openUpListeners(name, ports) };
  },
  async run(typed, output) {
    const { options, given } = withConfiguration(typed);
    const { name, ports, mirrors } = subjectOf(options, given);
    const manifests = await readManifests(options.file);
    const progress = startProgress(output);
    const lock = await lockCluster(name, 'fairlead up');
    let state = readCluster(name);
    // Left incomplete by an `up` that was killed.
    if (state?.isCreated === false) {
      await removeCluster(name);
      state = null;
    }
    const isNew = state === null;
    let applied: readonly ManifestObject[];
    if (state) {
      refuseChanges(state, options, given);
      // The folder may have other versions now.
      const { realControlPlane } = state;
      if (realControlPlane) state = { ...state, realControlPlane: findControlPlane(realControlPlane.folder) };
      checkPublishedPorts(ports ?? state.publishedPorts, state);
      if (ports !== null) state = await changePublishedPorts(state, ports);
      if (mirrors !== null) state = { ...state, registryMirrors: mirrors };
      const count = given.has('nodes') ? options.nodes : null;
      const { nodeState } = clusterPaths(name);
      const stateFolders = state.nodes.map((node) => nodeState(node.name));
      const isStopped = listTopology(name).length === 0;
      const startedAgainAt = isStopped ? await restartTime(stateFolders, systemClock) : null;
      state = await resumeCluster(state, count, progress, options.timeout);
      const { signal } = new AbortController();
      applied = await becomeReady(state, manifests, progress, options.timeout, signal, startedAgainAt);
    } else ({ state, applied } = await startCluster(name, options, ports ?? [], manifests, progress));
    if (!options['no-kubeconfig']) addToUserKubeconfig(state, progress);
    lock.release();
    const scene = {
      program: process.env['FAIRLEAD_COMMAND'] ?? 'fairlead',
      cluster: name,
      firstNode: state.nodes[0]?.name ?? '',
      publishedPorts: state.publishedPorts,
    };
    const facts = renderFacts(upFacts(state, isNew, applied), typed.options);
    progress.done(facts ?? upAdvice(scene, applied));
    // Later, `status` shows them.
    for (const warning of isNew ? await programWarnings() : [])
      output.err(wrapLines(`fairlead: ${warning}\n`, output.columns));
    const missing = manifests.problems.length + manifests.objects.length - applied.length;
    if (missing > 0)
      output.err(
        `fairlead: ${missing} of ${applied.length + missing} objects of the manifests were not applied, see above\n`,
      );
    if (!options.detach) await stayAttached(state, isNew, output);
    return missing > 0 ? 1 : 0;
  },
});

/** Returns what `up` made, for programs. */
function upFacts(state: ClusterState, isNew: boolean, applied: readonly ManifestObject[]) {
  return {
    name: state.name,
    isNew,
    server: `https://127.0.0.1:${state.apiPort}`,
    kubeconfig: clusterPaths(state.name).kubeconfig,
    mode: state.mode,
    ipFamily: state.ipFamily,
    nodes: state.nodes.map(({ name, addresses }) => ({ name, addresses })),
    publishedPorts: state.publishedPorts,
    applied: applied.map(({ object: { apiVersion, kind }, namespace, name }) => ({
      ...{ apiVersion, kind, namespace, name },
    })),
  };
}

/** Returns the cluster's name, its published ports and its mirrors; null: unchanged. Throws FairleadError for invalid ones. */
function subjectOf(
  options: Pick<Values<typeof OPTIONS>, 'name' | 'publish' | 'registry-mirror'>,
  given: ReadonlySet<string>,
): {
  readonly name: string;
  readonly ports: readonly PublishedPort[] | null;
  readonly mirrors: readonly RegistryMirror[] | null;
} {
  const wanted = given.has('name') ? options.name : process.env['FAIRLEAD_CLUSTER'];
  const name = checkClusterName(wanted || DEFAULT_CLUSTER);
  return {
    name,
    ports: given.has('publish') ? parsePublishedPorts(options.publish) : null,
    mirrors: given.has('registry-mirror') ? parseMirrors(options['registry-mirror']) : null,
  };
}

/** Adds the settings of the --config file; typed options take precedence. */
export function withConfiguration(
  typed: Parsed<typeof OPTIONS>,
): Pick<Parsed<typeof OPTIONS>, 'options' | 'given'> {
  const { config } = typed.options;
  if (config === null) return typed;
  const words = configurationWords(config, OPTIONS, CONFIGURABLE, STRUCTURED);
  const read = parseWords({ name: 'up', options: OPTIONS, arguments: [] }, words);
  const own = Object.entries(typed.options).filter(([name]) => typed.given.has(name));
  const folder = read.options['control-plane'];
  return {
    options: {
      ...read.options,
      // Relative to the file, as its manifests.
      'control-plane': folder === null ? null : resolve(dirname(config), folder),
      ...Object.fromEntries(own),
      file: [...read.options.file, ...typed.options.file],
    },
    given: read.given.union(typed.given),
  };
}

/** Adds the cluster to the kubeconfig of the user, who may run sudo, as the current context. */
function addToUserKubeconfig({ name }: ClusterState, progress: Progress): void {
  const user = isRootless() ? ownKubeconfig() : sudoKubeconfig(process.env);
  const state = readCluster(name);
  if (!user || !state) return;
  try {
    addContext(user, readFileSync(clusterPaths(name).kubeconfig, 'utf8'));
    writeCluster({ ...state, userKubeconfig: user });
    progress.step('kubeconfig', `context ${authorityName(state)} in ${user.file}`);
  } catch (error) {
    progress.step('kubeconfig', `not changed: ${messageOf(error)}`);
  }
}

export async function startCluster(
  name: string,
  options: Values<typeof OPTIONS>,
  publishedPorts: readonly PublishedPort[],
  manifests: Manifests,
  progress: Progress,
): Promise<{ readonly state: ClusterState; readonly applied: readonly ManifestObject[] }> {
  requireMachine(options);
  await requireCatatonit();
  refuseLeftovers(name);
  const memory = prepareStateFolder();
  if (memory !== null) progress.step('state', memory);
  const folder = options['control-plane'];
  const request = {
    name,
    nodes: options.nodes,
    mode: options.mode,
    ipFamily: options['ip-family'],
    overlay: options.overlay,
    authorization: options.authorization,
    podCidr: options['pod-cidr'],
    serviceCidr: options['service-cidr'],
    maxPods: options['max-pods'],
    lbPool: options['lb-pool'],
    hostAccess: options['host-access'],
    egress: options.egress,
    registryMirrors: parseMirrors(options['registry-mirror']),
    publishedPorts,
    realControlPlane: folder === null ? null : findControlPlane(folder),
    proxy: {
      masqueradeAll: options['masquerade-all'],
      localDetection: !options['no-local-detection'],
    },
  };
  const interrupted = interruption();
  let isPlanned = false;
  const makePlan = () => {
    checkPublishedPorts(publishedPorts, null);
    const apiPort = freeApiPort(publishedPorts.map(({ localPort }) => localPort));
    const plan = planCluster({ ...request, apiPort }, occupiedNetworks(), version, new Date());
    isPlanned = true;
    return recordPlan(plan);
  };
  try {
    const planning = planAlone('fairlead up', makePlan, interrupted.signal);
    const planned = await Promise.race([planning, interrupted.promise]);
    const state = createCluster(planned, progress);
    const ready = becomeReady(state, manifests, progress, options.timeout, interrupted.signal);
    return { state, applied: await Promise.race([ready, interrupted.promise]) };
  } catch (error) {
    // A cluster that is running but not ready is kept for inspection; anything else is removed.
    if (isPlanned && hasCode(error, 'not-ready')) throw error;
    const logs = isPlanned && !hasCode(error, 'interrupted') ? keepLogs(name) : null;
    if (isPlanned) await removeCluster(name);
    releaseStateFolder();
    throw logs === null ? error : withLogs(error, logs);
  } finally {
    interrupted.stop();
  }
}

/** Copies the logs of a failed start out of the folder that is removed. Returns where they are; null: there are none. */
function keepLogs(name: string): string | null {
  const { logs } = clusterPaths(name);
  if (!existsSync(logs)) return null;
  const kept = mkdtempSync(join(tmpdir(), `fairlead-${name}-logs-`));
  cpSync(logs, kept, { recursive: true });
  return kept;
}

function withLogs(error: unknown, logs: string): FairleadError {
  const details = error instanceof FairleadError ? error : null;
  return new FairleadError(messageOf(error), {
    op: details?.op ?? 'fairlead up',
    code: details?.code ?? 'ended',
    hint: `the logs are in ${logs}`,
    cause: details?.cause,
  });
}

/** Throws FairleadError if this machine cannot run a cluster with these options. */
function requireMachine({ mode, overlay }: Pick<Values<typeof OPTIONS>, 'mode' | 'overlay'>): void {
  requireKernel({ vxlan: overlay === 'vxlan' });
  const obstacle = clusterModeObstacle(mode);
  if (obstacle === null) return;
  throw new FairleadError(`this machine cannot run the mode ${mode}: ${obstacle.reason}`, {
    op: 'fairlead up',
    code: 'missing-kernel-feature',
    hint: obstacle.fix ?? 'choose another one with --mode; fairlead doctor lists them',
  });
}

/**
 * Reports restarts until Ctrl-C, which removes a cluster started by this command; a cluster that ran before
 * keeps running.
 */
async function stayAttached(state: ClusterState, isNew: boolean, output: Output): Promise<void> {
  const { name } = state;
  output.err(isNew ? 'Ctrl-C removes the cluster\n' : 'Ctrl-C detaches; the cluster keeps running\n');
  const interrupted = interruption();
  const watching = watchRestarts(name, output);
  await interrupted.promise.catch(() => {});
  interrupted.stop();
  clearInterval(watching);
  if (isNew) {
    await removeCluster(name);
    output.err(`cluster ${name} removed\n`);
  } else output.err(`cluster ${name} keeps running; to remove it: fairlead down --name ${name}\n`);
}

/** Rejects options that differ from those with which the cluster was created: they would have no effect. */
function refuseChanges(
  state: ClusterState,
  options: Values<typeof OPTIONS>,
  given: ReadonlySet<string>,
): void {
  const earlierHostAccess =
    state.machineAddresses.length === 0 ? 'none' : state.machineRoutes.length === 0 ? 'wire' : 'services';
  const present = {
    mode: state.mode,
    'ip-family': state.ipFamily,
    overlay: state.overlay,
    'pod-cidr': state.podCidrs.join(),
    'service-cidr': state.serviceCidrs.join(),
    'max-pods': maxPodsOf(state),
    authorization: state.authorization,
    'control-plane': state.realControlPlane?.folder ?? 'the embedded control plane',
    'lb-pool': poolsText(state.loadBalancerPools),
    'host-access': state.hostAccess ?? earlierHostAccess,
    egress: state.egress ?? false,
    'masquerade-all': state.proxy.masqueradeAll,
    'no-local-detection': !state.proxy.localDetection,
  } as const;
  for (const option of Object.keys(present) as (keyof typeof present)[]) {
    const typed = options[option];
    const value = comparable(option, typed);
    if (!given.has(option) || value === present[option]) continue;
    const isFlag = typeof value === 'boolean';
    const actual = isFlag ? `without --${option}` : `with ${present[option]}`;
    throw new FairleadError(`--${option}${isFlag ? '' : ` ${value}`}: cluster ${state.name} runs ${actual}`, {
      op: 'fairlead up',
      code: 'EEXIST',
      hint:
        option === 'mode'
          ? `switch it: fairlead mode ${value} --name ${state.name}`
          : `omit --${option}, or remove the cluster first: fairlead down --name ${state.name}`,
    });
  }
}

/** Returns the value of an option in the form in which a cluster's state has it. */
function comparable<T>(option: string, value: T): T | string {
  if (typeof value !== 'string') return value;
  if (option === 'lb-pool') return poolsText(parsePools(value));
  return option === 'control-plane' ? resolve(value) : value;
}

/** Reports each process that the supervisor restarts; keeps this process alive. */
function watchRestarts(name: string, output: Output): NodeJS.Timeout {
  const exitOf = () =>
    new Map(
      Object.entries(readSupervision(name).processes).map(([one, { lastExit }]) => [one, lastExit?.at]),
    );
  let known = exitOf();
  return setInterval(() => {
    const { processes } = readSupervision(name);
    for (const [process, { lastExit }] of Object.entries(processes)) {
      if (lastExit && lastExit.at !== known.get(process))
        output.err(`${process}: ${lastExit.reason}; the supervisor restarts it\n`);
    }
    known = exitOf();
  }, POLL_MS);
}

/** Prints each step with the time since the start. */
export function startProgress(output: Output): Progress {
  const start = performance.now();
  const isColoured = output.interactive && !process.env['NO_COLOR'];
  const mark = isColoured ? '\u001b[32m✓\u001b[0m' : '✓';
  return {
    step(what, detail = '') {
      const ms = Math.round(performance.now() - start);
      const line = `${mark} ${what.padEnd(24)} ${String(ms).padStart(6)} ms  ${detail}\n`;
      output.err(wrapLines(line, output.columns));
    },
    problem: (error) => output.err(wrapLines(renderError(error), output.columns)),
    warning: (text) => output.err(wrapLines(`fairlead: warning: ${text}\n`, output.columns)),
    done(text) {
      const seconds = ((performance.now() - start) / 1000).toFixed(2);
      output.err(`ready in ${seconds} s\n\n`);
      output.out(text);
    },
  };
}

/** Returns a promise that rejects, and a signal that aborts, at the first Ctrl-C or SIGTERM. */
function interruption(): { readonly promise: Promise<never>; readonly signal: AbortSignal; stop(): void } {
  const { promise, reject } = Promise.withResolvers<never>();
  const controller = new AbortController();
  promise.catch(() => {});
  const interrupt = () => {
    reject(new FairleadError('interrupted', { op: 'fairlead up', code: 'interrupted' }));
    controller.abort();
  };
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  return {
    promise,
    signal: controller.signal,
    stop: () => {
      process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
    },
  };
}

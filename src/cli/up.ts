import { closeSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { availableModes } from '../agent/dataplanes.ts';
import { writeCredentials } from '../cluster/credentials.ts';
import { applyManifests, type ManifestObject, readManifests } from '../cluster/manifests.ts';
import { NODE_DNS, PROXY_NAME_LABEL } from '../cluster/node-dns.ts';
import { addNodes, removeNodes } from '../cluster/nodes.ts';
import { occupiedNetworks } from '../cluster/occupied-networks.ts';
import { MAX_NODES, planCluster } from '../cluster/plan.ts';
import { logTail, startControlPlane, startNodeAgent } from '../cluster/processes.ts';
import { nodeReady, objectReady, watchCluster } from '../cluster/readiness.ts';
import { removeCluster } from '../cluster/removal.ts';
import { requireKernel, requireRoot } from '../cluster/requirements.ts';
import { servicesAnswer } from '../cluster/service-answers.ts';
import {
  type ClusterState,
  checkClusterName,
  clusterPaths,
  DEFAULT_CLUSTER,
  isReady,
  isRunning,
  listClusters,
  readCluster,
  writeCluster,
} from '../cluster/state.ts';
import { listenTcpIn } from '../kernel/netns.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { familyOf } from '../lib/address.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { createTopology, listTopology, plugMachine, routeMachine } from '../network/topology.ts';
import { defineCommand, type Output } from './command.ts';
import { choice, flag, text, texts, wholeNumber } from './options.ts';
import { version } from './version.ts';

const FIRST_API_PORT = 6443;

export const command = defineCommand({
  name: 'up',
  summary: 'start a local cluster and wait until it is ready',
  description: [
    'Starts a local cluster, applies the manifests, waits until everything in them is ready, and prints what to try next. Runs until Ctrl-C, which stops the cluster, or in the background with --detach. For a cluster that runs already, it starts again what has stopped, adds or removes nodes for --nodes, and applies the manifests.',
  ],
  arguments: [],
  options: {
    file: texts('FILE', 'a manifest to apply; "-" is standard input', { short: 'f', main: true }),
    nodes: wholeNumber(
      'N',
      [1, 1, MAX_NODES],
      'how many nodes; a running cluster gets more, or loses its last',
      {
        main: true,
      },
    ),
    mode: choice('MODE', availableModes(), 'nftables', 'the proxy mode of the nodes', { main: true }),
    'ip-family': choice('F', ['ipv4', 'ipv6', 'dual'], 'ipv4', 'the IP family', { main: true }),
    overlay: choice('O', ['routes', 'vxlan'], 'routes', 'how packets of pods travel between nodes'),
    name: text('NAME', "the cluster's name", { fallback: DEFAULT_CLUSTER }),
    detach: flag('return when everything is ready', { main: true }),
    'pod-cidr': text('C[,C]', 'networks of pods (10.244.0.0/16, fd00:10:244::/56)'),
    'service-cidr': text('C[,C]', 'networks of Services (10.96.0.0/16, fd00:10:96::/112)'),
    'masquerade-all': flag(
      "servers see a node as the client of every cluster IP (kube-proxy's masqueradeAll)",
    ),
    'no-local-detection': flag('nodes do not know the addresses of pods (kube-proxy without clusterCIDR)'),
    'lb-pool': text('C[,C]', 'addresses of LoadBalancer Services: networks or ranges'),
    'host-access': choice(
      'services',
      ['none', 'wire', 'services'],
      'none',
      "connect this machine to the cluster's wire: its programs (a browser) reach node ports and load-balancer addresses; with =services also cluster IPs, and names through the cluster's DNS",
      { implied: 'wire', main: true },
    ),
    authorization: choice(
      'A',
      ['RBAC', 'AlwaysAllow'],
      'RBAC',
      'what users may do: as roles and bindings say, or everything for every authenticated user',
    ),
    timeout: wholeNumber('S', [60, 1, 86_400], 'how many seconds to wait for readiness'),
  },
  async run({ options, given }, output) {
    const optional = (name: keyof typeof options) => (given.has(name) ? String(options[name]) : null);
    const name = checkClusterName(options.name);
    const { nodes, mode, overlay, authorization, timeout } = options;
    const ipFamily = options['ip-family'];
    requireRoot('up');
    const manifests = readManifests(options.file);
    const progress = startProgress(output);
    const existing = readCluster(name);
    if (existing) {
      refuseChanges(existing, {
        mode: optional('mode'),
        'ip-family': optional('ip-family'),
        overlay: optional('overlay'),
        'pod-cidr': optional('pod-cidr'),
        'service-cidr': optional('service-cidr'),
        authorization: optional('authorization'),
      });
    }
    let state: ClusterState;
    if (existing)
      state = await resume(existing, optional('nodes') === null ? null : nodes, progress, timeout);
    else {
      requireKernel();
      const request = {
        name,
        nodes,
        mode,
        ipFamily,
        overlay,
        authorization,
        podCidr: optional('pod-cidr'),
        serviceCidr: optional('service-cidr'),
        lbPool: optional('lb-pool'),
        hostAccess: options['host-access'],
        apiPort: freeApiPort(),
        proxy: {
          masqueradeAll: options['masquerade-all'],
          localDetection: !options['no-local-detection'],
        },
      };
      state = planCluster(request, occupiedNetworks(), version, new Date());
      const interrupted = interruption();
      try {
        state = await create(state, progress);
        await Promise.race([becomeReady(state, manifests, progress, timeout), interrupted.promise]);
      } catch (error) {
        // Nothing half-done is left, whatever went wrong; a cluster that runs but is not ready stays to be looked at.
        if (!(error instanceof FairleadError) || error.code !== 'not-ready') await removeCluster(name);
        throw error;
      } finally {
        interrupted.stop();
      }
    }
    if (existing) await becomeReady(state, manifests, progress, timeout);
    progress.done(advice(state, manifests));
    if (options.detach) return 0;
    output.err('Ctrl-C stops the cluster\n');
    const interrupted = interruption();
    const watching = watchProcesses(state, output);
    await interrupted.promise.catch(() => {});
    interrupted.stop();
    clearInterval(watching);
    await removeCluster(name);
    output.err(`cluster ${name} removed\n`);
    return 0;
  },
});

/** What is decided when a cluster is made is not silently another than somebody asks for. */
function refuseChanges(state: ClusterState, asked: Readonly<Record<string, string | null>>): void {
  const present: Readonly<Record<string, string>> = {
    mode: state.mode,
    'ip-family': state.ipFamily,
    overlay: state.overlay,
    'pod-cidr': state.podCidrs.join(),
    'service-cidr': state.serviceCidrs.join(),
    authorization: state.authorization,
  };
  for (const [option, value] of Object.entries(asked)) {
    if (value === null || value === present[option]) continue;
    throw new FairleadError(`--${option} ${value}: cluster ${state.name} runs with ${present[option]}`, {
      op: 'fairlead up',
      code: 'EEXIST',
      hint:
        option === 'mode'
          ? `switch it: fairlead mode ${value} --name ${state.name}`
          : `leave --${option} out, or stop the cluster first: fairlead down --name ${state.name}`,
    });
  }
}

interface Progress {
  step(what: string, detail?: string): void;
  done(advice: string): void;
}

/** Prints each step with the time since the start. */
function startProgress(output: Output): Progress {
  const start = performance.now();
  const mark = output.interactive ? '\u001b[32m✓\u001b[0m' : '✓';
  return {
    step(what, detail = '') {
      const ms = Math.round(performance.now() - start);
      output.err(`${mark} ${what.padEnd(24)} ${String(ms).padStart(6)} ms  ${detail}\n`);
    },
    done(text) {
      const seconds = ((performance.now() - start) / 1000).toFixed(2);
      output.err(`ready in ${seconds} s\n\n`);
      output.out(text);
    },
  };
}

/** Says so when a process of the cluster ends; keeps this one alive. */
function watchProcesses(state: ClusterState, output: Output): NodeJS.Timeout {
  const told = new Set<string>();
  const processes = [
    { name: 'control-plane', process: state.controlPlane },
    ...state.nodes.map((node) => ({ name: node.name, process: node.agent })),
  ];
  return setInterval(() => {
    for (const { name, process } of processes) {
      if (told.has(name) || isRunning(process)) continue;
      told.add(name);
      output.err(`${name} has ended:\n${logTail(state, name)}\n`);
    }
  }, 500);
}

/** Rejects at the first Ctrl-C or SIGTERM. */
function interruption(): { readonly promise: Promise<never>; stop(): void } {
  const { promise, reject } = Promise.withResolvers<never>();
  promise.catch(() => {});
  const interrupt = () =>
    reject(new FairleadError('interrupted', { op: 'fairlead up', code: 'interrupted' }));
  process.on('SIGINT', interrupt).on('SIGTERM', interrupt);
  return {
    promise,
    stop: () => {
      process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
    },
  };
}

async function create(planned: ClusterState, progress: Progress): Promise<ClusterState> {
  const { name } = planned;
  if (listTopology(name).length > 0) {
    throw new FairleadError(`namespaces of an earlier cluster ${name} are still here`, {
      op: 'fairlead up',
      code: 'EEXIST',
      hint: `fairlead down --name ${name}`,
    });
  }
  writeCluster(planned);
  writeLauncher(planned);
  createTopology({
    cluster: name,
    wireCidrs: planned.wireCidrs,
    controlPlaneAddresses: planned.controlPlaneAddresses,
    outsideAddresses: planned.outsideAddresses,
    nodes: planned.nodes,
  });
  if (planned.machineAddresses.length > 0) plugMachine(name, planned.machineAddresses, planned.wireCidrs);
  for (const { destination, via } of planned.machineRoutes) routeMachine(name, destination, via);
  writeCredentials(planned);
  progress.step('wire and nodes', planned.nodes.map((node) => node.name).join(' '));
  const state: ClusterState = {
    ...planned,
    controlPlane: startControlPlane(planned),
    nodes: planned.nodes.map((node) => ({ ...node, agent: startNodeAgent(planned, node) })),
  };
  writeCluster(state);
  return state;
}

/** This very program as a command, for `exec` on nodes and outside. */
function writeLauncher(state: ClusterState): void {
  const { bin } = clusterPaths(state.name);
  mkdirSync(bin, { recursive: true, mode: 0o755 });
  const words = [process.execPath, ...process.execArgv, process.argv[1] ?? ''];
  const quoted = words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
  writeFileSync(join(bin, 'fairlead'), `#!/bin/sh\nexec ${quoted} "$@"\n`, { mode: 0o755 });
}

/** Starts again what has stopped of a cluster that is there, and gives it as many nodes as asked for. */
async function resume(
  before: ClusterState,
  nodeCount: number | null,
  progress: Progress,
  timeoutSeconds: number,
): Promise<ClusterState> {
  const state = addNodes(before, nodeCount ?? before.nodes.length);
  const known = new Set(before.nodes.map(({ name }) => name));
  const started = { again: [] as string[], added: [] as string[] };
  let { controlPlane } = state;
  if (!isRunning(controlPlane)) {
    started.again.push('control plane');
    controlPlane = startControlPlane(state);
  }
  const kept = new Set(state.nodes.slice(0, nodeCount ?? undefined));
  const nodes = state.nodes.map((node) => {
    if (isRunning(node.agent) || !kept.has(node)) return node;
    started[known.has(node.name) ? 'again' : 'added'].push(node.name);
    return { ...node, agent: startNodeAgent(state, node) };
  });
  const resumed = { ...state, controlPlane, nodes };
  writeCluster(resumed);
  const said = [
    ...(started.again.length > 0 ? [`started again: ${started.again.join(', ')}`] : []),
    ...(started.added.length > 0 ? [`added: ${started.added.join(', ')}`] : []),
  ];
  progress.step(`cluster ${state.name}`, said.join('; ') || 'is running');
  if (kept.size === nodes.length) return resumed;
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  try {
    const client = createClient(transport, 'fairlead-up');
    const remaining = await removeNodes(
      client,
      resumed,
      kept.size,
      AbortSignal.timeout(timeoutSeconds * 1000),
    );
    const gone = nodes.slice(kept.size).map(({ name }) => name);
    progress.step('nodes removed', gone.join(', '));
    return remaining;
  } finally {
    transport.close();
  }
}

async function becomeReady(
  state: ClusterState,
  manifests: readonly ManifestObject[],
  progress: Progress,
  timeoutSeconds: number,
): Promise<void> {
  const ended = new AbortController();
  const deadline = AbortSignal.any([AbortSignal.timeout(timeoutSeconds * 1000), ended.signal]);
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  const client = createClient(transport, 'fairlead-up');
  const guard = setInterval(() => {
    const dead = [
      ...(isRunning(state.controlPlane) ? [] : ['control-plane']),
      ...state.nodes.filter((node) => !isRunning(node.agent)).map((node) => node.name),
    ];
    if (dead.length > 0)
      ended.abort(
        new Error(`${dead.join(', ')} ended:\n${dead.map((name) => logTail(state, name)).join('\n')}`),
      );
  }, 100);
  const notReady = (error: unknown) =>
    ended.signal.aborted
      ? new FairleadError(messageOf(ended.signal.reason), {
          op: 'fairlead up',
          code: 'ended',
          hint: `the whole log: ${clusterPaths(state.name).logs}`,
        })
      : new FairleadError(`not ready after ${timeoutSeconds} s:\n  ${messageOf(error)}`, {
          op: 'fairlead up',
          code: 'not-ready',
          hint: `fairlead status --name ${state.name}; or stop it: fairlead down --name ${state.name}`,
        });
  try {
    await client.request('GET', '/version').catch((error: unknown) => {
      throw notReady(error);
    });
    progress.step('control plane', `https://127.0.0.1:${state.apiPort}`);
    await createClusterServices(client, state);
    const watch = watchCluster(client, AbortSignal.any([deadline, ended.signal]));
    const nodes = state.nodes.map((node) => nodeReady(watch, node.name));
    await watch.until(nodes, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    await agentsReady(state, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    // Not before all nodes are there: the first would get all the pods.
    await applyManifests(client, manifests);
    progress.step(
      'nodes ready',
      state.nodes.map((node) => `${node.name} ${node.addresses.join(' ')}`).join(', '),
    );
    const requirements = manifests.flatMap((entry) => objectReady(watch, entry) ?? []);
    if (requirements.length > 0) {
      await watch.until(requirements, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
      progress.step('pods ready', `${watch.pods.list().length} pods`);
    }
    const answering = await servicesAnswer(client, state, manifests, deadline);
    if (answering.length > 0) progress.step('Services answer', answering.join(', '));
  } finally {
    clearInterval(guard);
    ended.abort();
    transport.close();
  }
}

/** Waits for the agents that run now: a node that was ready before one was started again is so in the API still. */
async function agentsReady(state: ClusterState, deadline: AbortSignal): Promise<void> {
  const { nodeState } = clusterPaths(state.name);
  const starting = () => state.nodes.filter((node) => !isReady(nodeState(node.name), node.agent));
  while (starting().length > 0) {
    if (deadline.aborted)
      throw new Error(
        starting()
          .map(({ name }) => `the agent of ${name} is starting`)
          .join('\n  '),
      );
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** The cluster's DNS as a Service, for people and programs that look for it; nodes answer its address themselves. */
async function createClusterServices(
  client: ReturnType<typeof createClient>,
  state: ClusterState,
): Promise<void> {
  const dns = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name: 'kube-dns',
      namespace: 'kube-system',
      labels: {
        'k8s-app': 'kube-dns',
        'kubernetes.io/cluster-service': 'true',
        'kubernetes.io/name': 'CoreDNS',
        [PROXY_NAME_LABEL]: NODE_DNS,
      },
    },
    spec: {
      clusterIP: state.dnsAddresses[0],
      clusterIPs: state.dnsAddresses,
      ipFamilyPolicy: state.dnsAddresses.length > 1 ? 'RequireDualStack' : 'SingleStack',
      ipFamilies: state.dnsAddresses.map((address) => (familyOf(address) === 'ipv6' ? 'IPv6' : 'IPv4')),
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP' },
        { name: 'dns-tcp', port: 53, protocol: 'TCP' },
      ],
    },
  };
  try {
    await client.request('POST', '/api/v1/namespaces/kube-system/services', dns);
  } catch (error) {
    if (!hasCode(error, 'AlreadyExists')) throw error;
  }
}

/** The first port from 6443 on that no other cluster has and nothing else on this machine's loopback listens on. */
function freeApiPort(): number {
  const taken = new Set(
    listClusters().map((name) =>
      existsSync(clusterPaths(name).state) ? readCluster(name)?.apiPort : undefined,
    ),
  );
  for (let port = FIRST_API_PORT; port <= 65_535; port++) {
    if (taken.has(port)) continue;
    try {
      closeSync(listenTcpIn(null, '127.0.0.1', port));
      return port;
    } catch (error) {
      if (!hasCode(error, 'EADDRINUSE')) throw error;
    }
  }
  throw new FairleadError('every port from 6443 on is in use on 127.0.0.1', {
    op: 'fairlead up',
    code: 'EADDRINUSE',
  });
}

function advice(state: ClusterState, manifests: readonly ManifestObject[]): string {
  const program = process.env['FAIRLEAD_COMMAND'] ?? 'fairlead';
  const suffix = state.name === DEFAULT_CLUSTER ? '' : ` --name ${state.name}`;
  const pod = manifests.find((entry) => entry.kind.kind === 'Pod');
  const service = manifests.find(
    (entry) => entry.kind.kind === 'Service' && entry.namespace === pod?.namespace,
  );
  const inDefault = pod?.namespace === 'default';
  const lines = [
    'try:',
    `  export KUBECONFIG=$(${program} kubeconfig${suffix})`,
    `  kubectl ${pod && !inDefault ? `-n ${pod.namespace} ` : ''}get pods,services -o wide`,
    ...(pod && service
      ? [
          `  ${program} exec${suffix} ${inDefault ? '' : `${pod.namespace}/`}${pod.name} -- fairlead request http://${service.name} --count 300`,
        ]
      : []),
    `  ${program} status${suffix}`,
    `  ${program} down${suffix}`,
    '',
  ];
  return lines.join('\n');
}

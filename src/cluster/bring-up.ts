import { isRunning } from '../kernel/process-identity.ts';
import { withWarnings } from '../kube/api-warnings.ts';
import { type Client, createClient, hasReason } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { PROXY_NAME_LABEL } from '../kube/well-known-labels.ts';
import { FAMILY_NAMES, familyOf } from '../lib/address.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { lastLogLines } from './container-logs.ts';
import { type EgressReport, readEgressReports, readNameProblem } from './egress.ts';
import { keepWarned } from './kept-warnings.ts';
import { applyManifests, type ManifestObject, type Manifests } from './manifests.ts';
import { NODE_DNS } from './node-dns.ts';
import { logTail } from './processes.ts';
import type { Progress } from './progress.ts';
import { portsOpen } from './published-ports.ts';
import {
  type ClusterWatch,
  nodeReady,
  objectReady,
  podsRestarted,
  restartedSince,
  watchCluster,
  watchFirstReady,
} from './readiness.ts';
import { servicesAnswer } from './service-answers.ts';
import { servicePortText } from './service-port.ts';
import { type ClusterState, clusterPaths, isReady, readCluster, readSupervision } from './state.ts';

/** Reasons of containers that wait for their pod. */
const CREATING: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing']);
/**
 * How long after all were ready pods are looked at once more: on a slow machine, a container ends later, too. `startMs`: how long
 * the first of them took to start; how many follow says nothing about the machine.
 */
const settleMs = (startMs: number): number => Math.min(Math.max(startMs / 2, 150), 3000);
/** How long all pods must stay ready, once one of them was ready and then was not. */
const STABLE_MS = 3000;
/** Troubles that are shown while `up` waits. */
const MAX_TROUBLES = 10;
/** After this many consecutive exits a process is considered broken. */
const MAX_FAILURES = 3;

/**
 * Waits until the API server answers, and the nodes and all objects of the manifests are ready, and returns these
 * objects. An object that cannot be applied is reported as a problem. `startedAgainAt`: the time of a restart of the
 * whole cluster; then also waits for the pods that were ready before it. Throws FairleadError "not-ready" after the
 * timeout or when the signal aborts, and "ended" if a process keeps failing.
 */
export async function becomeReady(
  state: ClusterState,
  manifests: Manifests,
  progress: Progress,
  timeoutSeconds: number,
  signal: AbortSignal,
  startedAgainAt: number | null = null,
): Promise<readonly ManifestObject[]> {
  const start = performance.now();
  const startedAt = Date.now();
  const ended = new AbortController();
  const deadline = AbortSignal.any([AbortSignal.timeout(timeoutSeconds * 1000), ended.signal, signal]);
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  const client = createClient(transport, 'fairlead-up');
  const earlier = readSupervision(state.name).processes;
  const guard = setInterval(() => {
    const { processes } = readSupervision(state.name);
    for (const [name, { lastExit, failures }] of Object.entries(processes)) {
      const fresh = failures - (earlier[name]?.failures ?? 0);
      if (fresh < MAX_FAILURES || lastExit === null) continue;
      ended.abort(`${name} ${lastExit.reason}, ${fresh} times in a row:\n${logTail(state, name)}`);
    }
  }, 100);
  const notReady = (error: unknown) =>
    ended.signal.aborted
      ? new FairleadError(messageOf(ended.signal.reason), {
          op: 'fairlead up',
          code: 'ended',
          hint: `the whole log: ${clusterPaths(state.name).logs}`,
        })
      : new FairleadError(`not ready after ${secondsSince(start)} s:\n  ${messageOf(error)}`, {
          op: 'fairlead up',
          code: 'not-ready',
          hint: `fairlead status --name ${state.name}; or stop it: fairlead down --name ${state.name}`,
        });
  try {
    await controlPlaneStarted(state, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    if (state.realControlPlane)
      await programsReady(state, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    await answered(client, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    const version = state.realControlPlane ? `  Kubernetes ${state.realControlPlane.version}` : '';
    progress.step('control plane', `https://127.0.0.1:${state.apiPort}${version}`);
    await createClusterServices(client, state);
    const watch = watchCluster(client, AbortSignal.any([deadline, ended.signal]));
    reportTroubles(watch, progress);
    const nodes = state.nodes.map((node) => nodeReady(watch, node.name));
    await watch.until(nodes, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    await agentsReady(state, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
    // Only when all nodes are ready, or all pods would be placed on the first.
    const warnings = new Set<string>();
    const warned = new Set<string>();
    const reporting = withWarnings(transport, (text, path) => {
      warned.add(path.split('?')[0] ?? path);
      if (!warnings.has(text)) progress.warning(text);
      warnings.add(text);
    });
    const applying = createClient(reporting, 'fairlead-up');
    const { applied, problems } = await applyManifests(applying, manifests.objects, deadline);
    keepWarned(state.name, [...warned]);
    progress.step(
      'nodes ready',
      state.nodes.map((node) => `${node.name} ${node.addresses.join(' ')}`).join(', '),
    );
    for (const problem of [...manifests.problems, ...problems]) progress.problem(problem);
    const requirements = [
      ...applied.flatMap((entry) => objectReady(watch, entry) ?? []),
      ...(startedAgainAt === null ? [] : podsRestarted(watch, startedAgainAt)),
    ];
    const objectsReady = (stableMs: number) =>
      watch.until(requirements, deadline, stableMs).catch(async (error: unknown) => {
        const lines = await lastLogLines(transport, watch.pods.list());
        return Promise.reject(notReady([messageOf(error), ...lines].join('\n  ')));
      });
    const appliedAt = performance.now();
    const firstReady = watchFirstReady(watch, startedAgainAt ?? startedAt, () => performance.now());
    await objectsReady(0);
    const readyAt = performance.now();
    const answering = await servicesAnswer(client, state, applied, deadline);
    if (requirements.length > 0) {
      // A container that ends at once was ready for a moment, and is again after each restart.
      await pause(
        systemClock,
        settleMs((firstReady() ?? readyAt) - appliedAt) - (performance.now() - readyAt),
      );
      const isBroken = requirements.some((requirement) => requirement() !== null);
      const isRestarted =
        startedAgainAt === null && watch.pods.list().some((pod) => restartedSince(pod, startedAt));
      if (isBroken || isRestarted) await objectsReady(STABLE_MS);
      progress.step('pods ready', `${watch.pods.list().length} pods`);
    }
    if (answering.length > 0) progress.step('Services answer', answering.join(', '));
    if (state.publishedPorts.length > 0) {
      await portsOpen(state, deadline).catch((error: unknown) => Promise.reject(notReady(error)));
      const shown = state.publishedPorts.map(
        ({ localPort, service }) => `127.0.0.1:${localPort} → ${servicePortText(service)}`,
      );
      progress.step('ports published', shown.join(', '));
    }
    if (state.egress) {
      const reports = await egressReady(state.name, deadline).catch((error: unknown) =>
        Promise.reject(notReady(error)),
      );
      for (const { family, uplinks, problem } of reports) {
        if (problem === null)
          progress.step(`egress ${FAMILY_NAMES[family]}`, `through ${uplinks.join(', ')}`);
        else progress.step(`egress ${FAMILY_NAMES[family]}`, `closed: ${problem}`);
      }
      const nameProblem = readNameProblem(state.name);
      if (nameProblem !== null) progress.step('egress names', `not resolved: ${nameProblem}`);
    }
    return applied;
  } finally {
    clearInterval(guard);
    ended.abort();
    transport.close();
  }
}

const secondsSince = (start: number): number => Math.round((performance.now() - start) / 1000);

/** Waits until the API server answers: on a slow machine it takes longer to start than a request waits. */
async function answered(client: Client, deadline: AbortSignal): Promise<void> {
  for (;;) {
    try {
      await client.request('GET', '/version', undefined, { signal: deadline });
      return;
    } catch (error) {
      if (deadline.aborted) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Reports each failure of a pod's sandbox, network or volumes once, while `up` waits. */
function reportTroubles(watch: ClusterWatch, progress: Progress): void {
  const known = new Set<string>();
  const look = (pod: Pod) => {
    const { waiting } = pod.status?.containerStatuses?.[0]?.state ?? {};
    if (!waiting?.message || !CREATING.has(waiting.reason ?? '')) return;
    const text = `Pod ${pod.metadata?.namespace}/${pod.metadata?.name}: ${waiting.message}`;
    if (known.has(text) || known.size >= MAX_TROUBLES) return;
    known.add(text);
    progress.problem(new FairleadError(text, { op: 'fairlead up', code: 'FailedCreatePodSandBox' }));
  };
  watch.pods.handle({ onAdd: look, onUpdate: (pod) => look(pod), onDelete() {} });
}

/** Waits until the supervisor has started the control plane: then its listeners are open, and connections are queued. */
async function controlPlaneStarted({ name }: ClusterState, deadline: AbortSignal): Promise<void> {
  while (!isRunning(readCluster(name)?.controlPlane ?? null)) {
    if (deadline.aborted)
      throw new FairleadError('the control plane is not running', { op: 'fairlead up', code: 'not-running' });
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Waits until the API server of a real control plane answers, with the rights of agents. */
async function programsReady({ name }: ClusterState, deadline: AbortSignal): Promise<void> {
  while (!isReady(clusterPaths(name).root, readCluster(name)?.controlPlane ?? null)) {
    if (deadline.aborted)
      throw new FairleadError('kube-apiserver does not answer', { op: 'fairlead up', code: 'not-ready' });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Waits until the process of the egress has reported each family, open or closed. */
async function egressReady(name: string, deadline: AbortSignal): Promise<readonly EgressReport[]> {
  for (;;) {
    const reports = readEgressReports(name);
    if (reports !== null) return reports;
    if (deadline.aborted)
      throw new FairleadError('the egress process has not reported yet', {
        op: 'fairlead up',
        code: 'not-ready',
      });
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Waits for the running agents: in the API, a node remains ready while its agent restarts. */
async function agentsReady(state: ClusterState, deadline: AbortSignal): Promise<void> {
  const { nodeState } = clusterPaths(state.name);
  const starting = () =>
    (readCluster(state.name) ?? state).nodes.filter(
      ({ name, agent }) => !isRunning(agent) || !isReady(nodeState(name), agent),
    );
  while (starting().length > 0) {
    if (deadline.aborted)
      throw new FairleadError(
        starting()
          .map(({ name }) => `the agent of ${name} is starting`)
          .join('\n  '),
        { op: 'fairlead up', code: 'not-ready' },
      );
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Creates a Service for cluster DNS, for programs that look it up; each node itself answers on its address. */
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
      clusterIP: state.dnsAddresses[0] ?? '',
      clusterIPs: [...state.dnsAddresses],
      ipFamilyPolicy: state.dnsAddresses.length > 1 ? 'RequireDualStack' : 'SingleStack',
      ipFamilies: state.dnsAddresses.map((address) => (familyOf(address) === 'ipv6' ? 'IPv6' : 'IPv4')),
      ports: [
        { name: 'dns', port: 53, protocol: 'UDP' },
        { name: 'dns-tcp', port: 53, protocol: 'TCP' },
      ],
    },
  };
  try {
    await client.get(RESOURCES.services, dns.metadata.name, dns.metadata.namespace);
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
    // Of an existing one kube-apiserver would refuse the address first, which is in use.
    await client.create(RESOURCES.services, dns);
  }
}

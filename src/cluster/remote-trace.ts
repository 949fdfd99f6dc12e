import { setTimeout as sleep } from 'node:timers/promises';
import type { AgentState } from '../agent/agent-state.ts';
import { MAX_TRACED_PODS, type TraceBody, type TracedPod } from '../agent/trace-body.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { End } from '../trace/hops.ts';
import type { Observation, TracedPacket } from '../trace/observation.ts';
import { ownAddresses, podName } from './observed-places.ts';
import { problemText, type RemoteCluster } from './remote-cluster.ts';
import { refuseOutside } from './remote-explain.ts';
import { createRemoteObservers, type RemoteObservers } from './remote-observers.ts';
import {
  followProxy,
  longestAnswerMs,
  MAX_ENDPOINT_PODS,
  sendTraced,
  serviceNode,
  type TracedFlow,
  type TraceQuestion,
  tracedProtocol,
} from './trace-flow.ts';

/** Who sends the packet of a trace, and who observes it. */
export interface RemoteTracePlan {
  readonly origin: {
    /** "pod default/client", "n1" */
    readonly place: string;
    readonly node: string;
    /** Null: the node itself. */
    readonly pod: string | null;
  };
  /** The observed nodes, that of the client first, with the pods whose own devices are observed. */
  readonly nodes: ReadonlyMap<string, readonly TracedPod[]>;
  /** Nodes that the packet may pass, and that are not observed. */
  readonly leftOut: readonly string[];
}

/** Called for what is not observed, and why. */
export type OnProblem = (node: string, problem: string) => void;

/** The most nodes that are observed. */
export const MAX_TRACED_NODES = 32;

/**
 * Explains a flow of a cluster whose agents run in pods, lets the agent of the client's node send one real packet of it, and
 * follows it by what the agents of the nodes on its way see. Throws the errors of `explain` and `trace`, and FairleadError if
 * the client's agent refuses. `patienceMs`: as longestAnswerMs.
 */
export async function traceRemotely(
  cluster: RemoteCluster,
  question: TraceQuestion,
  onProblem: OnProblem,
  patienceMs = longestAnswerMs,
): Promise<TracedFlow> {
  refuseOrigin(question);
  refuseOutside(question);
  const explanation = await cluster.explain(question);
  const { packet, endpoints } = explanation;
  if (packet === null) return { explanation, lookups: [], trace: null, agreement: null };
  const protocol = tracedProtocol(packet.protocol, question);
  const { client, agents } = cluster;
  const [pods, nodes] = await Promise.all([client.list(RESOURCES.pods), client.list(RESOURCES.nodes)]);
  const names = agents.map(({ node }) => node);
  const plan = planRemoteTrace(names, { pods: pods.items, nodes: nodes.items }, explanation);
  for (const node of plan.leftOut) onProblem(node, 'not observed: the packet may pass it unseen');
  const entry = serviceNode(names, explanation);
  const end = new AbortController();
  try {
    const isProxied = entry !== null && endpoints.length > 0 && (await hasProxy(cluster, entry));
    const proxy = isProxied ? await followProxy(cluster, entry, end.signal) : null;
    return await sendTraced(explanation, packet, {
      ...{ origin: plan.origin, protocol, proxy, lookups: [] },
      observe: (traced, destination) => observeRemotely(cluster, plan, traced, destination, onProblem),
      patienceMs: patienceMs(isProxied ? endpoints.length : 0),
    });
  } finally {
    end.abort();
  }
}

function refuseOrigin({ from }: TraceQuestion): void {
  if (!/^outside(@|$)/.test(from)) return;
  throw new FairleadError('FROM is outside, where no agent runs that could send a packet', {
    op: 'trace',
    code: 'unsupported',
    hint: 'trace from a pod or node/NAME; trace --watch svc/NAME shows connections of clients outside',
  });
}

/** Reports whether the mode of a node opens connections of its own to endpoints. */
async function hasProxy(cluster: RemoteCluster, node: string): Promise<boolean> {
  const { mode } = (await cluster.ask(node, 'state')) as AgentState;
  return modeDiffers(mode, 'server-sees-node');
}

/** Decides who observes a packet. Throws FairleadError if it cannot be sent from its client. */
export function planRemoteTrace(
  agents: readonly string[],
  { pods, nodes }: { readonly pods: readonly Pod[]; readonly nodes: readonly Node[] },
  { from, packet, endpoints, steps }: Explanation,
): RemoteTracePlan {
  const ends = new Set(
    [packet?.destination ?? '', ...endpoints.map(({ address }) => address)].slice(0, MAX_ENDPOINT_PODS),
  );
  const client = pods.find((pod) => `pod ${podName(pod)}` === from);
  const isPod = client !== undefined && !client.spec?.hostNetwork;
  const node = client?.spec?.nodeName ?? agents.find((name) => from === `node ${name}`) ?? '';
  if (!agents.includes(node)) throw cannotSend(from, node);
  const servers = pods.filter((pod) => ownAddresses(pod).some((address) => ends.has(address)));
  const passed = new Set([
    node,
    ...steps.flatMap(({ subject, object }) => (subject === 'entry' && object ? nodeOf(object) : [])),
    ...(packet?.node ? [packet.node] : []),
    ...servers.flatMap(({ spec }) => spec?.nodeName ?? []),
    ...nodes.flatMap(({ metadata, status }) =>
      status?.addresses?.some(({ address }) => address && ends.has(address)) ? (metadata?.name ?? []) : [],
    ),
  ]);
  const observed = [...passed].filter((name) => agents.includes(name)).slice(0, MAX_TRACED_NODES);
  const observedPods = isPod ? [client, ...servers.filter((pod) => pod !== client)] : servers;
  return {
    origin: {
      place: isPod ? from : node,
      node,
      pod: isPod ? podName(client) : null,
    },
    nodes: new Map(observed.map((name) => [name, tracedPods(observedPods, name)])),
    leftOut: [...passed].filter((name) => !observed.includes(name)),
  };
}

const nodeOf = (object: string) => (object.startsWith('Node ') ? object.slice('Node '.length) : []);

/** Returns the first pods of a node as its agent takes them. */
export const tracedPods = (pods: readonly Pod[], node: string): TracedPod[] =>
  pods
    .filter(({ spec }) => spec?.nodeName === node)
    .slice(0, MAX_TRACED_PODS)
    .map((pod) => ({ name: podName(pod), addresses: ownAddresses(pod) }));

const cannotSend = (from: string, node: string) =>
  new FairleadError(
    `packets cannot be sent from ${from}${node === '' ? '' : `: no agent runs on its node, ${node}`}`,
    { op: 'trace', code: 'bad-argument', hint: 'use a running pod or node/NAME' },
  );

/** Attaches the observers of all nodes, and then lets that of the client send the packet. */
async function observeRemotely(
  cluster: RemoteCluster,
  { origin, nodes }: RemoteTracePlan,
  packet: TracedPacket,
  destination: End,
  onProblem: OnProblem,
): Promise<Observation> {
  const observers = createRemoteObservers({ cluster, onProblem, now: Date.now, sleep: (ms) => sleep(ms) });
  const open = (node: string, send: TraceBody['send']) =>
    observers.open(node, { pods: nodes.get(node) ?? [], packet, watched: null, send });
  try {
    const others = [...nodes.keys()].filter((node) => node !== origin.node);
    await openAll(others, (node) => open(node, null), onProblem);
    await open(origin.node, { pod: origin.pod, destination });
    return observationOf(observers, origin.node);
  } catch (error) {
    observers.close();
    throw error;
  }
}

/** Opens the streams of nodes; one that fails is a problem of this node only. Throws FairleadError if the user may not. */
export async function openAll(
  nodes: readonly string[],
  open: (node: string) => Promise<void>,
  onProblem: OnProblem,
): Promise<void> {
  await Promise.all(
    nodes.map((node) =>
      open(node).catch((error: unknown) => {
        if (hasCode(error, 'Forbidden')) throw error;
        onProblem(node, `not observed: ${problemText(error)}`);
      }),
    ),
  );
}

function observationOf(observers: RemoteObservers, reference: string): Observation {
  return {
    clocks: observers.clocks(reference),
    get sightings() {
      return observers.sightings;
    },
    get result() {
      return observers.result;
    },
    check() {
      const failure = observers.failure();
      if (failure !== null) throw failure;
    },
    settle: () => observers.settle(),
    moved: (place) => observers.moved(place),
    lost: () => observers.lost(),
    close: () => observers.close(),
  };
}

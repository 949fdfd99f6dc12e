import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AgentState } from '../agent/agent-state.ts';
import type { ListedObjects } from '../agent/explain-objects.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { longestDialMs } from '../dataplane/userspace/tcp-dialler.ts';
import type { FlowsEntry } from '../flows/flow-line.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import { TUNNEL_PORT } from '../kernel/packet.ts';
import type { Pod } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { Protocol } from '../service/model.ts';
import { type Agreement, compare, onlyEndpoint } from '../trace/agreement.ts';
import type { ProxyConnection } from '../trace/flow.ts';
import type { End, Translator, Translators } from '../trace/hops.ts';
import type { TracedProxy } from '../trace/judge.ts';
import { observeHere } from '../trace/local-observation.ts';
import type { TracedLookup } from '../trace/lookup.ts';
import type { Observation, TracedPacket } from '../trace/observation.ts';
import type { TracedPlace } from '../trace/recorder.ts';
import { MAX_SEQUENCE, type TraceOptions, type TraceResult, trace } from '../trace/trace.ts';
import { askAgent } from './agent-client.ts';
import { createFlowExplainer } from './explain-flow.ts';
import { agentFlows, type FlowSource, type FlowStreams, readFlows } from './flow-reader.ts';
import { createPlaceFinder, ownAddresses, type PlaceFinder, podName } from './observed-places.ts';
import { cgroupParent } from './processes.ts';
import type { ClusterState } from './state.ts';
import { hasQuestions, traceLookups } from './traced-lookups.ts';

/** A request to trace one connection or datagram. */
export interface TraceQuestion {
  readonly from: string;
  readonly to: string;
  /** Null: any family that both ends have. */
  readonly family: IPFamily | null;
}

/** The answer of `explain` for a flow, and the hops of a real packet of it. */
export interface TracedFlow {
  readonly explanation: Explanation;
  /** The questions to name servers before the packet; only in a local cluster. */
  readonly lookups: readonly TracedLookup[];
  /** Null: no packet was sent, because the name did not resolve. */
  readonly trace: TraceResult | null;
  readonly agreement: Agreement | null;
}

/**
 * How long an answer may take: neighbour resolution fails after three seconds, and a SYN is sent again until then.
 * `proxied`: the number of endpoints of a proxy, which resets the client when none of them has answered.
 */
export const longestAnswerMs = (proxied: number): number => Math.max(3500, longestDialMs(proxied) + 1000);
/** How long a name server may take: a second, as for `explain`, and more on a busy machine. */
const DNS_PATIENCE_MS = 1500;
/** The maximum number of endpoints whose pods are observed. */
export const MAX_ENDPOINT_PODS = 64;

/**
 * Explains a flow of a local cluster, sends one real packet of it and follows the packet. `pods`: all pods of the cluster.
 * `machine` and `listObjects`: as of createFlowExplainer. Throws the errors of `explain` and `trace`; FairleadError "unsupported" for SCTP.
 */
export async function traceFlow(
  state: ClusterState,
  pods: readonly Pod[],
  question: TraceQuestion,
  machine: NetnsRef = OWN_NETNS,
  listObjects?: () => Promise<ListedObjects>,
): Promise<TracedFlow> {
  const explanation = await createFlowExplainer(state, {
    machine,
    ...(listObjects && { listObjects }),
  }).explain(question);
  const { packet, endpoints } = explanation;
  if (packet === null && !hasQuestions(explanation))
    return { explanation, lookups: [], trace: null, agreement: null };
  const protocol = packet && tracedProtocol(packet.protocol, question);
  const { origin, places } = findPlaces(createPlaceFinder(state, pods, machine), state, pods, explanation);
  const pause = (ms: number) => sleep(ms);
  const tunnelPort = state.overlay === 'vxlan' ? TUNNEL_PORT : null;
  const observe = (traced: TracedPacket, destination: End) =>
    observeHere(
      traced,
      { places, tunnelPort, send: { origin, destination }, sleep: pause },
      (observation) => {
        observation.send();
        return observation;
      },
    );
  const lookups = await traceLookups(explanation, question.family, (destination, asked) =>
    trace({
      ...{ origin, destination, protocol: 'UDP', endpoints: [], proxy: null, question: asked },
      translators: { destination: [], source: [] },
      sequence: randomInt(1, MAX_SEQUENCE),
      observe: (traced) => observe(traced, destination),
      patienceMs: DNS_PATIENCE_MS,
      sleep: pause,
      now: () => performance.now(),
    }),
  );
  if (packet === null || protocol === null) return { explanation, lookups, trace: null, agreement: null };
  const names = state.nodes.map(({ name }) => name);
  const entry = serviceNode(names, explanation);
  const { mode } = entry ? await askAgent<AgentState>(state, entry, 'GET', '/state') : state;
  const isProxied = modeDiffers(mode, 'server-sees-node') && endpoints.length > 0;
  const end = new AbortController();
  const proxy = isProxied && entry !== null ? await followProxy(agentFlows(state), entry, end.signal) : null;
  return await sendTraced(explanation, packet, {
    ...{ origin, protocol, proxy, lookups, observe },
    patienceMs: longestAnswerMs(isProxied ? endpoints.length : 0),
  }).finally(() => end.abort());
}

/** Sends a packet of an explained flow, follows it, and compares its way with the explanation. Throws the errors of `trace`. */
export async function sendTraced(
  explanation: Explanation,
  { destination: ip, port }: NonNullable<Explanation['packet']>,
  {
    lookups,
    ...options
  }: Pick<TraceOptions, 'origin' | 'protocol' | 'proxy' | 'patienceMs'> & {
    readonly lookups: readonly TracedLookup[];
    readonly observe: (packet: TracedPacket, destination: End) => Promise<Observation>;
  },
): Promise<TracedFlow> {
  const destination = { ip, port };
  const result = await trace({
    ...options,
    destination,
    endpoints: explanation.endpoints.map((endpoint) => ({ ip: endpoint.address, port: endpoint.port })),
    translators: translatorsOf(explanation),
    sequence: randomInt(1, MAX_SEQUENCE),
    observe: (packet) => options.observe(packet, destination),
    sleep: (ms) => sleep(ms),
    now: () => performance.now(),
  });
  const agreement = compare(explanation, result.legs, result.answer, lookups);
  return { explanation, lookups, trace: result, agreement };
}

/** Throws FairleadError "unsupported" for a protocol that cannot be traced. */
export function tracedProtocol(
  protocol: Protocol,
  { from, to }: Pick<TraceQuestion, 'from' | 'to'>,
): 'TCP' | 'UDP' {
  if (protocol !== 'SCTP') return protocol;
  throw new FairleadError('SCTP cannot be traced', {
    op: 'trace',
    code: 'unsupported',
    hint: `fairlead explain ${from} ${to}`,
  });
}

/** Follows the connections of a node's proxy until the signal aborts. Throws FairleadError if its agent is not running. */
export async function followProxy(
  source: FlowSource | FlowStreams,
  node: string,
  signal: AbortSignal,
): Promise<TracedProxy> {
  const connections: ProxyConnection[] = [];
  const keep = (entry: FlowsEntry) => {
    if (entry.type !== 'flow' || entry.endpoint === null) return;
    const { client, proxy, endpoint } = entry;
    connections.push({ client, proxy, endpoint });
  };
  await readFlows(source, node, keep, signal).started;
  return { node, connections: () => connections };
}

/** Returns the node whose Service rules decide: the last one that the packet enters, as for node ports of other nodes. */
export function serviceNode(nodes: readonly string[], { steps, packet }: Explanation): string | null {
  const entered = steps.flatMap(({ subject, object }) => {
    const node = subject === 'entry' && nodes.find((name) => object === `Node ${name}`);
    return node ? node : [];
  });
  return entered.at(-1) ?? packet?.node ?? null;
}

/** Returns the client's place, and every place that the packet may pass. */
function findPlaces(
  finder: PlaceFinder,
  state: ClusterState,
  pods: readonly Pod[],
  { from, packet, endpoints }: Explanation,
): {
  origin: { place: string; netns: TracedPlace['netns']; controlGroup: string | null };
  places: TracedPlace[];
} {
  const places = new Map<string, TracedPlace>();
  const add = (place: TracedPlace | null): TracedPlace | null => {
    if (place) places.set(place.name, place);
    return place;
  };
  for (const { name } of state.nodes) add(finder.node(name));
  add(finder.outside());
  const ends = [packet?.destination, ...endpoints.map(({ address }) => address)].filter(
    (ip) => ip !== undefined,
  );
  const wanted = new Set(ends.slice(0, MAX_ENDPOINT_PODS));
  for (const pod of pods) if (ownAddresses(pod).some((ip) => wanted.has(ip))) add(finder.pod(pod));
  const isEnd = (addresses: readonly string[]) => addresses.some((ip) => ends.includes(ip));
  if (isEnd(state.controlPlaneAddresses)) add(finder.controlPlane());
  if (isEnd(state.machineAddresses)) add(finder.machine());
  const pod = pods.find((one) => `pod ${podName(one)}` === from);
  const node = pod?.spec?.nodeName ?? state.nodes.find(({ name }) => from === `node ${name}`)?.name ?? null;
  const client =
    pod && !pod.spec?.hostNetwork
      ? add(finder.pod(pod))
      : node !== null
        ? (places.get(node) ?? null)
        : add(hostPlace(finder, from));
  if (!client) {
    throw new FairleadError(`packets cannot be sent from ${from}`, {
      op: 'trace',
      code: 'bad-argument',
      hint: 'use a running pod, node/NAME or outside',
    });
  }
  const controlGroup = node === null ? null : cgroupParent(state.name, node);
  return { origin: { place: client.name, netns: client.netns, controlGroup }, places: [...places.values()] };
}

function hostPlace(finder: PlaceFinder, from: string): TracedPlace | null {
  switch (from) {
    case 'outside':
      return finder.outside();
    case 'control-plane':
      return finder.controlPlane();
    case 'machine':
      return finder.machine();
    default:
      return null;
  }
}

/** The objects that explain names for the translation of a packet. */
export function translatorsOf(explanation: Explanation): Translators {
  const destination: Translator[] = [];
  const source: Translator[] = [];
  for (const step of explanation.steps) {
    const { subject, ruleOrKey } = step;
    if (ruleOrKey === null) continue;
    if (subject === 'rule' && KERNEL_OBJECT.test(ruleOrKey))
      destination.push({ object: ruleOrKey, to: onlyEndpoint(step, explanation) });
    if (subject === 'source') {
      const what = ruleOrKey.endsWith(' mode') ? 'the proxy' : 'masquerading';
      source.push({ object: `${what} (${ruleOrKey})`, to: null });
    }
  }
  return { destination, source };
}

/** Other keys are fields of objects. */
const KERNEL_OBJECT = /^(nft|iptables|ip6tables|ip|ipvsadm|ipset|bpf|fairlead)\b/;

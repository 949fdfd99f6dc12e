import { setTimeout as sleep } from 'node:timers/promises';
import type { FlowLine, FlowLineKind, FlowsEntry } from '../flows/flow-line.ts';
import { TUNNEL_PORT } from '../kernel/packet.ts';
import { preparePacketTaps } from '../kernel/packet-tap.ts';
import type { Pod, Service } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import { parseTarget } from '../observe/explain-target.ts';
import type { ExplainRequest } from '../observe/explain-view.ts';
import type { Explanation } from '../observe/explanation.ts';
import { compare } from '../trace/agreement.ts';
import type { PlaceClocks } from '../trace/clocks.ts';
import { firstSequence, type ProxyConnection } from '../trace/flow.ts';
import { describeFlow, judge, type TracedProxy } from '../trace/judge.ts';
import { unanswered } from '../trace/outcome.ts';
import { openRecorder, type Recorder, type TracedPlace } from '../trace/recorder.ts';
import type { Sighting } from '../trace/sighting.ts';
import { notFound } from './capture-target.ts';
import { createFlowExplainer } from './explain-flow.ts';
import { agentFlows, type FlowSource, type FlowStreams, readFlows } from './flow-reader.ts';
import { createPlaceFinder, ownAddresses, podName } from './observed-places.ts';
import type { ClusterState } from './state.ts';
import { type TracedFlow, translatorsOf } from './trace-flow.ts';

/** The first events of a connection that show its outcome. */
const OUTCOMES: ReadonlySet<FlowLineKind> = new Set<FlowLineKind>([
  ...(['established', 'reset', 'timeout', 'unreachable', 'denied'] as const),
  ...(['rejected', 'dropped', 'given-up'] as const),
]);
/** How long packets are kept for the event that tells whose they are. */
const KEPT_MS = 10_000;
const FORGET_EVERY_MS = 1000;
/** How long a proxy may try further endpoints, and the last packets may take. */
const SETTLE_MS = { answered: 100, failed: 1500 } as const;
/** The maximum number of pods whose devices are observed. */
const MAX_PODS = 256;

/** Traces of connections that others open to a Service. */
export interface FlowWatcher {
  /** "default/hello" */
  readonly service: string;
  /** Waits for the next connection and describes its way; null: the signal has aborted. */
  next(): Promise<TracedFlow | null>;
  close(): void;
}

/** The observers of the first packets of connections. */
export interface ConnectionObserver extends Pick<Recorder, 'sightings' | 'forget' | 'lost' | 'check'> {
  /** Waits for packets that have passed. */
  settle(ms: number): Promise<void>;
  /** Null: one clock stamps all packets. */
  clocks(reference: string): PlaceClocks | null;
  close(): void;
}

/** A cluster whose connections are watched. */
export interface WatchedCluster {
  readonly pods: readonly Pod[];
  /** The nodes whose agents tell which connections go to the Service. */
  readonly nodes: readonly string[];
  readonly flows: FlowSource | FlowStreams;
  readonly observer: ConnectionObserver;
  explain(request: ExplainRequest): Promise<Explanation>;
  /** The end of a node's flows: rejects if it ends the command. */
  tolerate(ended: Promise<void>, node: string): Promise<void>;
}

/** Reads the Service that is watched: "svc/NAME", "NAME". Throws FairleadError "not-found". */
export function watchedService(services: readonly Service[], text: string): Service {
  const { kind, namespace, name } = parseTarget(text);
  const wanted = `${namespace ?? 'default'}/${name}`;
  const found = services.find((service) => podName(service) === wanted);
  if (!found || !(kind === 'service' || kind === 'dns' || kind === 'pod'))
    throw notFound('Service', wanted, services.map(podName));
  return found;
}

/** Watches the connections to a Service of a local cluster. Throws FairleadError "not-found". */
export async function watchFlow(
  state: ClusterState,
  { pods, services }: { readonly pods: readonly Pod[]; readonly services: readonly Service[] },
  text: string,
  signal: AbortSignal,
): Promise<FlowWatcher> {
  const service = podName(watchedService(services, text));
  const opener = await preparePacketTaps((ms) => sleep(ms));
  try {
    const recorder = openRecorder(opener, {
      places: everyPlace(state, pods),
      filter: { protocol: 'TCP', handshakes: true },
      tunnelPort: state.overlay === 'vxlan' ? TUNNEL_PORT : null,
    });
    const observer: ConnectionObserver = {
      get sightings() {
        return recorder.sightings;
      },
      forget: recorder.forget,
      lost: recorder.lost,
      check: recorder.check,
      async settle(ms) {
        await sleep(ms);
        recorder.drain();
      },
      clocks: () => null,
      close: () => opener.close(),
    };
    return await watchConnections(
      {
        pods,
        nodes: state.nodes.map(({ name }) => name),
        flows: agentFlows(state),
        observer,
        // An explainer caches facts, which may have changed at the next connection.
        explain: (request) => createFlowExplainer(state).explain(request),
        tolerate: (ended) => ended,
      },
      service,
      signal,
    );
  } catch (error) {
    opener.close();
    throw error;
  }
}

/**
 * Watches the connections to a Service ("default/hello"), without sending anything: the agents tell which connections go to
 * it, and their packets were recorded meanwhile.
 */
export async function watchConnections(
  cluster: WatchedCluster,
  service: string,
  signal: AbortSignal,
): Promise<FlowWatcher> {
  const { observer, nodes, flows } = cluster;
  const end = new AbortController();
  signal.addEventListener('abort', () => end.abort(), { once: true });
  const close = () => {
    end.abort();
    observer.close();
  };
  try {
    const connections: (ProxyConnection & { readonly node: string })[] = [];
    const waiting: { readonly node: string; readonly line: FlowLine }[] = [];
    let wake = () => {};
    let failure: unknown = null;
    const onEntry = (node: string) => (entry: FlowsEntry) => {
      if (entry.type !== 'flow' || entry.protocol !== 'TCP') return;
      const { client, proxy, endpoint } = entry;
      if (endpoint) connections.push({ node, client, proxy, endpoint });
      if (!OUTCOMES.has(entry.kind) || entry.service?.name?.replace(/:.*/, '') !== service) return;
      // One at a time: those of a busy Service that come meanwhile are not traced.
      if (waiting.length < 16) waiting.push({ node, line: entry });
      wake();
    };
    const readers = nodes.map((node) => ({ node, ...readFlows(flows, node, onEntry(node), end.signal) }));
    await Promise.all(readers.map(({ node, started }) => cluster.tolerate(started, node)));
    for (const { node, ended } of readers) {
      cluster.tolerate(ended, node).catch((error: unknown) => {
        failure = error;
        wake();
      });
    }
    return {
      service,
      close,
      async next() {
        waiting.length = 0;
        while (!end.signal.aborted) {
          if (failure !== null) throw failure;
          observer.check();
          const found = waiting.shift();
          if (!found) {
            observer.forget(KEPT_MS);
            connections.splice(0, connections.length - 4096);
            await Promise.race([
              sleep(FORGET_EVERY_MS, undefined, { signal: end.signal }).catch(() => {}),
              new Promise<void>((resolve) => {
                wake = resolve;
              }),
            ]);
            continue;
          }
          await observer.settle(found.line.verdict === 'delivered' ? SETTLE_MS.answered : SETTLE_MS.failed);
          const flow = await describe(cluster, found, connections);
          if (flow) return flow;
        }
        return null;
      },
    };
  } catch (error) {
    close();
    throw error;
  }
}

function everyPlace(state: ClusterState, pods: readonly Pod[]): TracedPlace[] {
  const finder = createPlaceFinder(state, pods);
  const running = pods.filter((pod) => pod.status?.phase === 'Running' && ownAddresses(pod).length > 0);
  return [
    ...state.nodes.map(({ name }) => finder.node(name)),
    finder.outside(),
    ...running.slice(0, MAX_PODS).flatMap((pod) => finder.pod(pod) ?? []),
  ];
}

/** Returns null if the connection began before its packets were recorded. */
async function describe(
  { pods, observer, explain }: WatchedCluster,
  { node, line }: { readonly node: string; readonly line: FlowLine },
  connections: readonly (ProxyConnection & { readonly node: string })[],
): Promise<TracedFlow | null> {
  const { client, service } = line;
  const sequence = firstSequence(observer.sightings, client);
  if (sequence === null || !service) return null;
  const isProxied = connections.some((one) => one.proxy && hostPort(one.client) === hostPort(client));
  const proxy = isProxied
    ? { node, connections: () => connections.filter((one) => one.node === node) }
    : null;
  const judgedAt = (place: string, through: TracedProxy | null) =>
    judge(
      { proxy: through, origin: { place }, clocks: observer.clocks(node) },
      observer.sightings,
      { protocol: 'TCP', sequence },
      'open',
    );
  const [first] = judgedAt('', null).own;
  if (!first) return null;
  const { own, relayed, clocks, ...judged } = judgedAt(first.place.name, proxy);
  const answer = judged.answer ?? unanswered(own, relayed);
  const explanation = await explain({
    from: fromOf(first, client.ip, pods),
    to: `${hostPort(service)}/tcp`,
    family: null,
  });
  const options = {
    proxy,
    origin: { place: first.place.name },
    destination: { ip: service.ip, port: service.port },
    translators: translatorsOf(explanation),
  };
  const described = describeFlow(options, own, relayed, answer);
  return {
    explanation,
    lookups: [],
    trace: { ...described, answer, counters: [], drops: [], sizes: [], lostFrames: observer.lost(), clocks },
    agreement: compare(explanation, described.legs, answer),
  };
}

/** The client as `explain` takes it. `first`: its packet at the first device. */
function fromOf({ place, direction }: Sighting, address: string, pods: readonly Pod[]): string {
  // A pod whose own devices are not observed is first seen at those of its node.
  const pod = pods.find((one) => ownAddresses(one).includes(address));
  if (pod) return `pod/${podName(pod)}`;
  if (place.kind === 'node' && direction === 'out') return `node/${place.name}`;
  return place.name === 'outside' ? place.name : address;
}

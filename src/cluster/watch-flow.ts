import { setTimeout as sleep } from 'node:timers/promises';
import type { FlowLine, FlowLineKind, FlowsEntry } from '../flows/flow-line.ts';
import { TUNNEL_PORT } from '../kernel/packet.ts';
import { preparePacketTaps } from '../kernel/packet-tap.ts';
import type { Pod, Service } from '../kube/types.ts';
import { hostPort } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import { parseTarget } from '../observe/explain-target.ts';
import { compare } from '../trace/agreement.ts';
import { firstSequence, type ProxyConnection } from '../trace/flow.ts';
import { describeFlow, judge } from '../trace/judge.ts';
import { unanswered } from '../trace/outcome.ts';
import { openRecorder, type Recorder, type TracedPlace } from '../trace/recorder.ts';
import { notFound } from './capture-target.ts';
import { createFlowExplainer } from './explain-flow.ts';
import { agentFlows, readFlows } from './flow-reader.ts';
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

/**
 * Watches the connections to a Service ("svc/NAME", "NAME"), without sending anything: the agents tell which connections go
 * to it, and their packets were recorded meanwhile. Throws FairleadError "not-found".
 */
export async function watchFlow(
  state: ClusterState,
  { pods, services }: { readonly pods: readonly Pod[]; readonly services: readonly Service[] },
  text: string,
  signal: AbortSignal,
): Promise<FlowWatcher> {
  const { kind, namespace, name } = parseTarget(text);
  const service = `${namespace ?? 'default'}/${name}`;
  const names = services.map(podName);
  if (!(kind === 'service' || kind === 'dns' || kind === 'pod') || !names.includes(service))
    throw notFound('Service', service, names);
  const end = new AbortController();
  signal.addEventListener('abort', () => end.abort(), { once: true });
  const opener = await preparePacketTaps((ms) => sleep(ms));
  const close = () => {
    end.abort();
    opener.close();
  };
  try {
    const recorder = openRecorder(opener, {
      places: everyPlace(state, pods),
      filter: { protocol: 'TCP', handshakes: true },
      tunnelPort: state.overlay === 'vxlan' ? TUNNEL_PORT : null,
    });
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
    const source = agentFlows(state);
    const readers = state.nodes.map((node) => readFlows(source, node.name, onEntry(node.name), end.signal));
    await Promise.all(readers.map(({ started }) => started));
    for (const { ended } of readers) {
      ended.catch((error: unknown) => {
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
          recorder.check();
          const found = waiting.shift();
          if (!found) {
            recorder.forget(BigInt(Date.now() - KEPT_MS) * 1_000_000n);
            connections.splice(0, connections.length - 4096);
            await Promise.race([
              sleep(FORGET_EVERY_MS, undefined, { signal: end.signal }).catch(() => {}),
              new Promise<void>((resolve) => {
                wake = resolve;
              }),
            ]);
            continue;
          }
          await sleep(found.line.verdict === 'answered' ? SETTLE_MS.answered : SETTLE_MS.failed);
          recorder.drain();
          const flow = await describe(state, pods, recorder, found, connections);
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
  state: ClusterState,
  pods: readonly Pod[],
  recorder: Recorder,
  { node, line }: { readonly node: string; readonly line: FlowLine },
  connections: readonly (ProxyConnection & { readonly node: string })[],
): Promise<TracedFlow | null> {
  const { client, service } = line;
  const sequence = firstSequence(recorder.sightings, client);
  if (sequence === null || !service) return null;
  const isProxied = connections.some((one) => one.proxy && hostPort(one.client) === hostPort(client));
  const proxy = isProxied
    ? { node, connections: () => connections.filter((one) => one.node === node) }
    : null;
  const own = judge(
    { proxy: null, origin: { place: '' } },
    recorder.sightings,
    { protocol: 'TCP', sequence },
    'open',
  ).own;
  const origin = own[0]?.place;
  if (!origin) return null;
  const judged = judge(
    { proxy, origin: { place: origin.name } },
    recorder.sightings,
    { protocol: 'TCP', sequence },
    'open',
  );
  const answer = judged.answer ?? unanswered(judged.own, judged.relayed);
  const explanation = await createFlowExplainer(state).explain({
    from: fromOf(origin, pods),
    to: `${hostPort(service)}/tcp`,
    family: null,
  });
  const options = {
    proxy,
    origin: { place: origin.name },
    destination: { ip: service.ip, port: service.port },
    translators: translatorsOf(explanation),
  };
  const described = describeFlow(options, judged.own, judged.relayed, answer);
  return {
    explanation,
    trace: { ...described, answer, counters: [], lostFrames: recorder.lost() },
    agreement: compare(explanation, described.legs, answer),
  };
}

/** The client as `explain` takes it. Throws FairleadError for a place that it does not know. */
function fromOf({ kind, name }: TracedPlace | { kind: string; name: string }, pods: readonly Pod[]): string {
  if (kind === 'node') return `node/${name}`;
  const pod = pods.find((one) => name === `pod ${podName(one)}`);
  if (pod) return `pod/${podName(pod)}`;
  if (name === 'outside') return name;
  throw new FairleadError(`a connection came from ${name}, which explain does not know`, {
    op: 'trace',
    code: 'unsupported',
  });
}

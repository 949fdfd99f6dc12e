import { setTimeout as sleep } from 'node:timers/promises';
import type { TraceBody, WatchedConnections } from '../agent/trace-body.ts';
import { type EndpointSlice, type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { FairleadError } from '../lib/errors.ts';
import { serviceAddresses } from './capture-target.ts';
import { ownAddresses, podName } from './observed-places.ts';
import { problemText, type RemoteCluster } from './remote-cluster.ts';
import { createRemoteObservers } from './remote-observers.ts';
import { MAX_TRACED_NODES, type OnProblem, openAll, tracedPods } from './remote-trace.ts';
import { type FlowWatcher, watchConnections, watchedService } from './watch-flow.ts';

/** The observed traffic, and the nodes. */
export interface RemoteWatchPlan {
  readonly service: string;
  readonly bodies: ReadonlyMap<string, TraceBody>;
  /** Nodes that are not observed. */
  readonly leftOut: readonly string[];
}

/**
 * Watches the connections to a Service of a cluster whose agents run in pods. Throws FairleadError "not-found", and if no
 * agent observes.
 */
export async function watchRemotely(
  cluster: RemoteCluster,
  text: string,
  signal: AbortSignal,
  onProblem: OnProblem,
): Promise<FlowWatcher> {
  const { client, agents } = cluster;
  const [pods, services, slices] = await Promise.all([
    client.list(RESOURCES.pods),
    client.list(RESOURCES.services),
    client.list(RESOURCES.endpointSlices),
  ]);
  const names = agents.map(({ node }) => node);
  const service = watchedService(services.items, text);
  const plan = planRemoteWatch(names, service, pods.items, slices.items);
  if (plan.leftOut.length > 0)
    onProblem(
      `${plan.leftOut.length} nodes`,
      `not observed, because a trace observes at most ${MAX_TRACED_NODES}: connections of clients there are not seen`,
    );
  const pause = (ms: number) => sleep(ms);
  const reported = new Set<string>();
  /** An agent that ends, ends two streams. */
  const reportOnce: OnProblem = (node, problem) => {
    if (!reported.has(node)) onProblem(node, problem);
    reported.add(node);
  };
  const observers = createRemoteObservers({ cluster, onProblem: reportOnce, now: Date.now, sleep: pause });
  try {
    const open = (node: string) => observers.open(node, plan.bodies.get(node) ?? NOTHING);
    await openAll([...plan.bodies.keys()], open, reportOnce);
    const { nodes } = observers;
    if (nodes.length === 0)
      throw new FairleadError('no agent observes', { op: 'trace', code: 'not-running' });
    let failed = 0;
    return await watchConnections(
      {
        pods: pods.items,
        nodes,
        flows: cluster,
        explain: (request) => cluster.explain(request),
        // The other nodes still have connections to show.
        tolerate: (ended, node) =>
          ended.catch((error: unknown) => {
            if (++failed >= nodes.length) throw error;
            reportOnce(node, problemText(error));
          }),
        observer: {
          get sightings() {
            return observers.sightings;
          },
          forget: observers.forget,
          lost: observers.lost,
          check() {
            const failure = observers.failure();
            if (failure !== null) throw failure;
          },
          async settle(ms) {
            await pause(ms);
            await observers.settle();
          },
          clocks: observers.clocks,
          close: observers.close,
        },
      },
      plan.service,
      signal,
    );
  } catch (error) {
    observers.close();
    throw error;
  }
}

const NOTHING: TraceBody = { pods: [], packet: null, watched: { addresses: [], ports: [] }, send: null };

/** Decides who observes the connections to a Service: nodes of its endpoints first, since they see all of them. */
export function planRemoteWatch(
  agents: readonly string[],
  service: Service,
  pods: readonly Pod[],
  slices: readonly EndpointSlice[],
): RemoteWatchPlan {
  const watched: WatchedConnections = {
    addresses: serviceAddresses(service, slices),
    ports: (service.spec?.ports ?? []).flatMap(({ nodePort }) => (nodePort ? [nodePort] : [])),
  };
  const ends = new Set(watched.addresses);
  const running = pods.filter((pod) => pod.status?.phase === 'Running' && ownAddresses(pod).length > 0);
  const isServer = (pod: Pod) => ownAddresses(pod).some((address) => ends.has(address));
  const serverNodes = new Set(running.filter(isServer).map(({ spec }) => spec?.nodeName));
  const first = <T>(list: readonly T[], isFirst: (one: T) => boolean) => [
    ...list.filter(isFirst),
    ...list.filter((one) => !isFirst(one)),
  ];
  const nodes = first(agents, (node) => serverNodes.has(node));
  const observedPods = first(running, isServer);
  return {
    service: podName(service),
    bodies: new Map(
      nodes
        .slice(0, MAX_TRACED_NODES)
        .map((node) => [node, { ...NOTHING, pods: tracedPods(observedPods, node), watched }]),
    ),
    leftOut: nodes.slice(MAX_TRACED_NODES),
  };
}

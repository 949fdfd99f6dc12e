import { Worker } from 'node:worker_threads';
import { Gauge } from 'prom-client';
import { createEventRecorder, type EventRecorder } from '../kube/events.ts';
import { wantsAddress } from '../kube/load-balancer.ts';
import { RESOURCES, type Service } from '../kube/types.ts';
import { pause } from '../lib/clock.ts';
import { type CandidateSources, type Candidates, followCandidates } from '../loadbalancer/candidates.ts';
import type { LoadBalancerConfiguration } from './agent-configuration.ts';
import { type AgentContext, addressesOf } from './agent-context.ts';
import type { AnnouncerSettings, FromAnnouncer, ToAnnouncer } from './announcer-messages.ts';
import { registerPools } from './capacity-metrics.ts';
import type { EgressPart } from './egress-part.ts';
import { keepEgressStatus, reportEgressStarted } from './egress-status.ts';

export interface LoadBalancerSources extends CandidateSources {
  /** Returns the addresses of API servers that the agent has learned. */
  readonly servers: () => readonly string[];
  /** The egress gateways, whose addresses nodes have as they have those of Services; null: no pod network of ours. */
  readonly egress: EgressPart | null;
}

/** The thread that announces this node's share of the addresses. */
interface Announcer {
  /** Resolves when this node can own addresses; rejects when the agent ends first. */
  readonly ready: Promise<void>;
  /** Returns the number of addresses that this node announces. */
  count(): number;
}

/**
 * Announces this node's share of the load-balancer addresses, from when the first Service or egress gateway wants one: until then the node
 * renews no Lease for it. Call it after the node has programmed Services; resolves when those that exist can be announced.
 */
export async function startLoadBalancer(
  context: AgentContext,
  settings: LoadBalancerConfiguration,
  sources: LoadBalancerSources,
): Promise<void> {
  const { services } = sources;
  let announcer: Announcer | null = null;
  new Gauge({
    name: 'fairlead_load_balancer_announced_addresses',
    help: 'Load-balancer addresses that this node announces',
    registers: [context.registry],
    collect() {
      this.set(announcer?.count() ?? 0);
    },
  });
  registerPools(context.registry, settings.pools, () => services.list());
  await services.synced;
  const start = () => {
    if (announcer || context.signal.aborted) return;
    announcer = startAnnouncer(context, settings, sources);
  };
  const look = (service: Service) => {
    if (wantsAddress(service)) start();
  };
  const lookAtGateways = () => {
    if (sources.egress?.settings()) start();
  };
  sources.egress?.onChange(lookAtGateways);
  lookAtGateways();
  if (sources.egress) keepEgressStatus(context, sources.egress, eventsOf(context));
  const stopLooking = services.handle({ onAdd: look, onUpdate: look });
  context.onClose(stopLooking);
  // The type checker does not see the calls of the handler.
  await (announcer as Announcer | null)?.ready;
}

/** The agent tells the thread this often that it is alive. */
const ALIVE_MS = 1000;
/** The thread ends within this time: it waits for an answer to its last Lease for a second. */
const CLOSE_MS = 3000;
/** The heap of the thread: Leases of thousands of addresses. */
const MAX_HEAP_MB = 128;
const MAX_YOUNG_MB = 4;

const eventsOf = ({ client, configuration, clock, logger, signal }: AgentContext): EventRecorder =>
  createEventRecorder({
    ...{ client, clock, signal },
    component: 'fairlead-load-balancer',
    host: configuration.nodeName,
    logger: logger.child({ part: 'load-balancer' }),
  });

/** See announcer-worker.ts for why it is a thread. Started once, and not again: an error in it is one of the agent. */
function startAnnouncer(
  context: AgentContext,
  settings: LoadBalancerConfiguration,
  sources: LoadBalancerSources,
): Announcer {
  const { configuration, clock, signal } = context;
  const { nodeName, kubeconfig, server, servers } = configuration;
  const logger = context.logger.child({ part: 'load-balancer' });
  const events = eventsOf(context);
  // In the bundle, this code and the thread's are files of one folder.
  const entry = import.meta.url.endsWith('.ts') ? './announcer-worker.ts' : './announcer-worker.mjs';
  const workerData: AnnouncerSettings = {
    ...{ node: nodeName, server, servers },
    kubeconfig: settings.kubeconfig ?? kubeconfig,
    interface: settings.interface,
    leaseDurationMs: settings.leaseDurationMs,
    userAgent: context.userAgent,
    logsContact: settings.kubeconfig !== null,
  };
  const worker = new Worker(new URL(entry, import.meta.url), {
    workerData,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB, maxYoungGenerationSizeMb: MAX_YOUNG_MB },
  });
  const tell = (message: ToAnnouncer) => worker.postMessage(message);
  const ready = Promise.withResolvers<void>();
  const closed = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  let announced = 0;
  worker.on('message', (message: FromAnnouncer) => {
    switch (message.kind) {
      case 'ready':
        return ready.resolve();
      case 'announced':
        announced = message.count;
        return;
      case 'holders':
        sources.egress?.setHolders(new Map(message.holders));
        return;
      case 'egress-started':
        if (sources.egress) reportEgressStarted(sources.egress, events, nodeName, message);
        return;
      case 'event':
        for (const key of message.services) {
          const service = sources.services.get(key);
          if (service)
            events.event(service, message.type, message.reason, message.message, RESOURCES.services);
        }
        return;
      case 'log':
        return logger[message.level](message.fields, message.message);
      case 'missing-rule':
        return context.missingRules.set(RESOURCES.leases, message.rule);
      case 'answer':
        return context.requests.onAnswer(message.answer);
      case 'body':
        return context.requests.onBody(...message.body);
      case 'closed':
        return closed.resolve();
    }
  });
  // As for the agent's own thread: it ends with an error that nothing catches, and is started again.
  worker.on('error', (error) => {
    throw error;
  });
  let ofServices: Candidates | null = null;
  const tellCandidates = () => {
    if (ofServices) tell({ kind: 'candidates', candidates: withGateways(ofServices, sources.egress) });
  };
  const stopFollowing = followCandidates(sources, (candidates) => {
    ofServices = candidates;
    tellCandidates();
  });
  let told = '';
  const tellGateways = () => {
    const settings = sources.egress?.settings() ?? null;
    const wanted = [...(sources.egress?.state()?.wanted ?? [])].map(([one, { nodes }]) => [
      one,
      [...(nodes ?? [])],
    ]);
    const text = JSON.stringify([settings, wanted]);
    if (text === told) return;
    told = text;
    // The numbers first: an address that the thread gets must have one.
    tell({ kind: 'egress', settings });
    tellCandidates();
  };
  sources.egress?.onChange(tellGateways);
  tellGateways();
  let cancel = () => {};
  const stayAlive = () => {
    const node = sources.nodes.get(nodeName);
    tell({ kind: 'alive', addresses: node ? addressesOf(node) : [], servers: sources.servers() });
    cancel = clock.after(ALIVE_MS, stayAlive);
  };
  stayAlive();
  signal.addEventListener('abort', () => ready.reject(signal.reason));
  context.onClose(async () => {
    cancel();
    stopFollowing();
    tell({ kind: 'close' });
    await Promise.race([closed.promise, pause(clock, CLOSE_MS)]);
    await worker.terminate();
  });
  return { ready: ready.promise, count: () => announced };
}

/** Adds the addresses of egress gateways; one that a Service has, too, is of the nodes that may have both. */
function withGateways({ wanted, nodes }: Candidates, egress: EgressPart | null): Candidates {
  const gateways = egress?.state()?.wanted;
  if (!gateways || gateways.size === 0) return { wanted, nodes };
  const all = new Map(wanted);
  for (const [address, one] of gateways) {
    const other = wanted.get(address);
    const able = other?.nodes && one.nodes ? other.nodes.intersection(one.nodes) : one.nodes;
    all.set(address, { services: other?.services ?? [], nodes: able });
  }
  return { wanted: all, nodes };
}

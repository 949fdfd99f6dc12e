import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Gauge, Registry } from 'prom-client';
import { createLimitedClients, type LimitedClients } from '../dns/limited-clients.ts';
import { readSysctl } from '../kernel/sysctl.ts';
import { type Client, createClient } from '../kube/client.ts';
import { createEventRecorder, type EventRecorder, type EventType } from '../kube/events.ts';
import { follow, type Informer } from '../kube/informer.ts';
import { openObjectCache } from '../kube/object-cache.ts';
import { contactOf } from '../kube/server-contact.ts';
import { type KubeObject, type Node, RESOURCES, type Resource } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { shareCalls } from '../lib/shared-call.ts';
import { readHeldPods } from '../network/connection-bound.ts';
import { readLimitedClients } from '../network/dns-limit.ts';
import { sysctlProblem } from '../network/sysctl-access.ts';
import { createProcessMetrics } from '../proxy/process-metrics.ts';
import { type ProxyHealth, startStatusServers, withProblems } from '../proxy/status-servers.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { type AgentContext, type AgentOptions, addressesOf, type FollowOptions } from './agent-context.ts';
import { connectToApi } from './api-connection.ts';
import { cacheProblem, oldest } from './cached-objects.ts';
import { registerCertificates, registerConnectionTable } from './capacity-metrics.ts';
import { startCommands } from './commands-part.ts';
import { startControlSocket } from './control-socket.ts';
import type { ControlSources } from './control-sources.ts';
import { startDnsFallback } from './dns-fallback-part.ts';
import { startDns } from './dns-part.ts';
import { removeEgress, startEgress } from './egress-part.ts';
import { startPolicyPart } from './enforced-policies.ts';
import { indexObjects, listObjectsToExplain } from './explain-objects.ts';
import { type FollowedNodes, followNodes, needsProxierRights } from './followed-nodes.ts';
import { type GatewayPart, startGateways } from './gateway-part.ts';
import { joinCluster, keepClientCertificate } from './identity/node-identity.ts';
import { identityOptions } from './identity-options.ts';
import { createSliceTransform, PROXIED, trimService } from './informer-transforms.ts';
import { API_SERVICE_SLICES, type KnownApiServers, openKnownApiServers } from './known-api-servers.ts';
import { openLateNetwork } from './late-network.ts';
import { startLoadBalancer } from './load-balancer-part.ts';
import { createMissingRules, type MissingRules } from './missing-rules.ts';
import { podGateways } from './name-servers.ts';
import { startNetwork } from './network-part.ts';
import { reportNodeLosses } from './node-events.ts';
import { registerNode } from './node-registration.ts';
import {
  nodeProblem,
  nodeWhen,
  ownNodeOrSubstitute,
  podNetworkProblem,
  reportNodeProblems,
} from './own-node.ts';
import { type RuntimeProcess, startRuntimeProcess } from './pod-runtime/runtime-process.ts';
import { configureRuntime, startPods } from './pods-part.ts';
import { type ProxyPart, startProxyPart } from './proxy-part.ts';

/** The folder of objects below the state directory, for a start without the API server. */
const CACHE_FOLDER = 'objects';

/** The running agent of one node. */
export interface Agent {
  /** Resolves when the node can run pods and has programmed all Services. */
  readonly ready: Promise<void>;
  readonly proxy: ProxyPart | null;
  /**
   * Waits for the connections that this process copies, while the agent still works: call it before the signal aborts.
   * New connections are handled by the kernel from then on. Returns at once if the mode of the node copies none.
   */
  drain(): Promise<void>;
  /** Stops the agent; pods, addresses and rules stay, and traffic continues. */
  close(): Promise<void>;
}

/** Starts the enabled parts for the node whose network namespace this process is in. */
export async function startAgent(configuration: AgentConfiguration, options: AgentOptions): Promise<Agent> {
  // Before anything else, since it takes as long to load as this process has taken.
  const runtime = startRuntime(configuration, options);
  try {
    return await startParts(configuration, options, runtime);
  } catch (error) {
    await runtime?.close();
    throw error;
  }
}

/** Removes what an agent with the announcer has left. */
function removeEgressOf({ logger }: AgentContext): void {
  try {
    removeEgress();
  } catch (error) {
    logger.warn({ err: error }, `failed to remove the rules of egress gateways: ${messageOf(error)}`);
  }
}

/** The state that the steps of a start share. */
interface StartingAgent {
  readonly configuration: AgentConfiguration;
  readonly options: AgentOptions;
  readonly context: AgentContext;
  readonly apiServers: KnownApiServers;
  readonly missingRules: MissingRules;
  readonly runtime: RuntimeProcess | null;
  readonly followed: FollowedNodes;
  readonly events: EventRecorder;
  /** Clients whose queries the name server drops. */
  readonly limited: LimitedClients;
  /** Why the node's certificate cannot be renewed; null: it can. */
  readonly certificate: { readonly problem: string | null };
  /** Informers that may use objects of an earlier run. */
  readonly cached: readonly Pick<Informer<KubeObject>, 'cachedAt'>[];
  readonly startedAt: number;
  readonly bindFailure: PromiseWithResolvers<never>;
  proxy: ProxyPart | null;
  gateways: GatewayPart | null;
  isStarted: boolean;
  /** Why the pod network has not started; null: it has, or waits for nothing. */
  networkProblem: string | null;
}

async function startParts(
  configuration: AgentConfiguration,
  options: AgentOptions,
  runtime: RuntimeProcess | null,
): Promise<Agent> {
  const { clock, random, logger, signal } = options;
  const startedAt = clock.now();
  const closers: (() => Promise<void> | void)[] = [];
  const startsUntracked = Number(readSysctl('net.netfilter.nf_conntrack_count') ?? 0) === 0;
  for (const warning of configuration.warnings) logger.warn({}, warning);
  const registry = new Registry();
  const requests = createProcessMetrics(registry, options.version);
  const userAgent = `fairlead-agent/${options.version}`;
  mkdirSync(configuration.stateDir, { recursive: true, mode: 0o700 });
  const apiServers = openKnownApiServers(configuration.stateDir, logger);
  const identity = identityOptions(configuration, options, apiServers, userAgent);
  if (identity?.bootstrapKubeconfig) await joinCluster(identity);
  const connect = (kubeconfig: string | null): Client => {
    const transport = connectToApi(
      { ...configuration, kubeconfig },
      {
        ...options,
        ...requests,
        known: apiServers.urls,
        onReturn: () => contactOf(client, { clock, logger }).wake(),
      },
    );
    closers.push(() => transport.close());
    return createClient(transport, userAgent);
  };
  const client = connect(configuration.kubeconfig);
  const announcer = configuration.loadBalancer?.kubeconfig ?? null;
  const ownNode = (): Node =>
    own.get(configuration.nodeName) ?? {
      metadata: { name: configuration.nodeName, uid: configuration.nodeName },
    };
  const events = createEventRecorder({
    client,
    component: 'fairlead-agent',
    host: configuration.nodeName,
    clock,
    logger,
    signal,
  });
  const missingRules = createMissingRules({ events, node: ownNode });
  // A node that runs pods needs the API server for these; a local cluster's supervisor starts both together.
  const cache = configuration.pods
    ? null
    : openObjectCache({ folder: join(configuration.stateDir, CACHE_FOLDER), clock, logger });
  if (cache) closers.push(() => cache.close());
  const cached: Pick<Informer<KubeObject>, 'cachedAt'>[] = [];
  const context: AgentContext = {
    ...options,
    startedAt,
    configuration,
    startsUntracked,
    client,
    announcer: announcer === null ? client : connect(announcer),
    userAgent,
    requests,
    registry,
    missingRules,
    nodeEvent: (type, reason, message) => events.event(ownNode(), type, reason, message, RESOURCES.nodes),
    podEvent: (pod, type, reason, message) => events.event(pod, type, reason, message, RESOURCES.pods),
    follow<T extends KubeObject>(
      resource: Resource<T>,
      { cacheAs, onMissingRule, ...settings }: FollowOptions<T> = {},
    ) {
      const informer = follow({ client, clock, random, logger, signal }, resource, {
        contact: contactOf(client, { clock, logger }),
        onMissingRule(rule) {
          missingRules.set(resource, rule);
          onMissingRule?.(rule);
        },
        ...(cache && cacheAs ? { cached: () => cache.read<T>(cacheAs) } : {}),
        ...settings,
      });
      if (cacheAs) {
        cache?.keep(cacheAs, informer);
        cached.push(informer);
      }
      return informer;
    },
    onClose: (close) => closers.push(close),
  };
  if (runtime) configureRuntime(runtime, context);
  const followed = followNodes(context);
  const { own } = followed;
  const certificate: { problem: string | null } = { problem: null };
  if (identity) {
    keepClientCertificate({
      ...identity,
      client,
      onProblem(problem) {
        certificate.problem = problem;
        if (problem === null) return;
        logger.warn({}, problem);
        events.event(ownNode(), 'Warning', 'CertificateNotRenewed', problem, RESOURCES.nodes);
      },
    });
  }
  new Gauge({
    name: 'fairlead_cached_objects_age_seconds',
    help: 'Age of the objects of an earlier run that are used without the API server; 0: its own are used',
    registers: [registry],
    collect() {
      const at = oldest(cached);
      this.set(at === null ? 0 : (clock.now() - at) / 1000);
    },
  });
  registerConnectionTable(registry);
  registerCertificates(registry, configuration);
  const limited = createLimitedClients(clock.now);
  const bindFailure = Promise.withResolvers<never>();
  bindFailure.promise.catch(() => {});
  const agent: StartingAgent = {
    ...{ configuration, options, context, apiServers, missingRules, runtime, followed, events, limited },
    ...{ certificate, cached, startedAt, bindFailure },
    proxy: null,
    gateways: null,
    isStarted: false,
    networkProblem: null,
  };
  const ready = Promise.race([start(agent), bindFailure.promise]);
  ready.catch(() => {});
  return {
    ready,
    get proxy() {
      return agent.proxy;
    },
    drain: async () => await agent.proxy?.drain(),
    async close() {
      // First, since it asks the parts.
      await runtime?.close();
      for (const close of closers.reverse()) await close();
    },
  };
}

const start = async (agent: StartingAgent) => {
  const {
    configuration: { nodeAddress },
    context: { clock, logger },
  } = agent;
  const reporting = { address: nodeAddress, clock, logger };
  const { pods, network, dns, proxy: proxied, loadBalancer, nodeName } = agent.configuration;
  watch(agent);
  const wanted = dns || proxied || loadBalancer;
  const services = wanted
    ? agent.context.follow(RESOURCES.services, { transform: trimService, cacheAs: 'services' })
    : null;
  const slices = wanted
    ? agent.context.follow(RESOURCES.endpointSlices, {
        transform: createSliceTransform(),
        ...(dns
          ? { cacheAs: 'endpointslices' }
          : { labelSelector: PROXIED, cacheAs: 'proxied-endpointslices' }),
      })
    : null;
  // A node's identity has no right to EndpointSlices.
  if (needsProxierRights(agent.configuration)) {
    agent.apiServers.follow(slices ?? agent.context.follow(RESOURCES.endpointSlices, API_SERVICE_SLICES));
  }
  const serviceCidrs = proxied
    ? agent.context.follow(RESOURCES.serviceCidrs, { optional: true, cacheAs: 'servicecidrs' })
    : null;
  const registration = pods
    ? await registerNode({
        ...agent.options,
        client: agent.context.client,
        nodes: agent.followed.own,
        nodeName,
        addresses: pods.nodeAddresses,
        kubeletPort: pods.port,
        maxPods: pods.maxPods,
        startProblem: agent.missingRules.problem,
        stateDir: agent.configuration.stateDir,
      })
    : null;
  if (agent.runtime) registration?.setRuntimeProblems(agent.runtime.problems());
  agent.runtime?.onProblems((problems) => registration?.setRuntimeProblems(problems));
  agent.runtime?.onEnd((reason) => {
    if (!agent.context.signal.aborted)
      agent.context.nodeEvent('Warning', 'PodRuntimeEnded', `the pod runtime is started again: ${reason}`);
  });
  const ownOf = { nodes: agent.followed.own, name: nodeName, signal: agent.context.signal };
  const lacks = (one: Node | undefined) => (network ? podNetworkProblem(one, nodeName) : null);
  const isComplete = (one: Node) => addressesOf(one).length > 0 && lacks(one) === null;
  // A node of a local cluster has registered itself: it waits for its pod networks only.
  const node = pods
    ? await nodeWhen(ownOf, isComplete)
    : await ownNodeOrSubstitute({ ...ownOf, ...reporting, isComplete });
  if (!pods) {
    agent.context.onClose(reportNodeProblems({ ...ownOf, ...reporting }));
    const event = (node: Node, ...rest: [EventType, string, string]) =>
      agent.events.event(node, ...rest, RESOURCES.nodes);
    agent.context.onClose(reportNodeLosses({ ...ownOf, address: reporting.address, event }));
  }
  await agent.followed.present(isComplete);
  let keeperProblem: string | null = null;
  const onProblem = (problem: string | null) => {
    keeperProblem = problem;
    registration?.setNetworkProblem(
      agent.followed.problem() ?? settingsProblem(agent.configuration) ?? problem,
    );
  };
  agent.followed.onProblem(() => onProblem(keeperProblem));
  const unwritable = settingsProblem(agent.configuration);
  if (unwritable !== null) {
    agent.context.logger.error({}, unwritable);
    agent.context.nodeEvent('Warning', 'SettingsNotWritable', unwritable);
  }
  if ((agent.followed.problem() ?? unwritable) !== null) onProblem(null);
  const policies = await startPolicyPart(agent.context, agent.followed);
  // Without the announcer, no node can have an address of a gateway.
  const egress = network && loadBalancer ? startEgress(agent.context, agent.followed.nodes) : null;
  if (network && !egress) removeEgressOf(agent.context);
  const open = (from: Node) =>
    startNetwork(
      agent.context,
      from,
      agent.followed.nodes,
      agent.followed.own,
      { policies, egress },
      onProblem,
    );
  // An external address may be one that this machine does not have.
  const known = agent.followed.own.get(nodeName);
  const isUsual = known?.status?.addresses?.some(({ type }) => type === 'InternalIP') === true;
  const podNetwork = network && known && isUsual && lacks(known) === null ? open(known) : null;
  const late =
    network && !podNetwork
      ? openLateNetwork({
          ...ownOf,
          lacks,
          open,
          clock: agent.context.clock,
          logger: agent.context.logger,
          onProblem: (problem) => {
            agent.networkProblem = problem;
          },
        })
      : null;
  const lateGateways = late?.then(() => podGateways(agent.followed.own.get(nodeName) ?? node)) ?? null;
  lateGateways?.catch(() => {});
  const parts: Promise<unknown>[] = [];
  const programmed = Promise.withResolvers<unknown>();
  programmed.promise.catch(() => {});
  if (dns && services && slices) {
    const gateways = podNetwork && known ? podGateways(known) : [];
    const startFallback = (own: readonly string[]) =>
      startDnsFallback(agent.context, dns, {
        nodes: network ? agent.followed.nodes : null,
        ...{ services, slices, own },
        onChange: (others) => policies?.setNameServers([...dns.addresses, ...others]),
      });
    const others = lateGateways ? Promise.resolve(false) : startFallback(gateways);
    parts.push(others);
    const sources = {
      services,
      slices,
      gateways,
      lateGateways,
      limited: agent.limited,
      hold: policies?.hold ?? null,
    };
    parts.push(startDns(agent.context, dns, { ...sources, others, programmed: programmed.promise }));
    lateGateways?.then(startFallback).catch((error: unknown) => {
      if (!agent.context.signal.aborted)
        agent.context.logger.error({ err: error }, `failed to program the DNS fallback: ${messageOf(error)}`);
    });
  }
  if (proxied && services && slices && serviceCidrs) {
    parts.push(
      startProxyPart(agent.context, proxied, {
        node,
        followed: agent.followed,
        services,
        slices,
        serviceCidrs,
        policies,
        egress,
      }).then((started) => {
        agent.proxy = started;
        openCommands(agent, { part: started, services, slices, policies, egress });
        programmed.resolve(Promise.all([started.proxy.programmed, policies?.programmed()]));
        return started.proxy.programmed;
      }),
    );
  } else programmed.resolve(policies?.programmed());
  if (pods && services && slices)
    agent.gateways = startGateways(agent.context, { services, slices, own: agent.followed.own });
  if (agent.runtime && podNetwork) {
    const { urls } = agent.apiServers;
    const programmedSlices = () => agent.proxy?.programmedSlices ?? null;
    const sources = {
      network: podNetwork,
      nodes: agent.followed.nodes,
      own: agent.followed.own,
      slices,
      programmedSlices,
      apiServers: urls,
    };
    parts.push(startPods(agent.context, agent.runtime, sources));
  }
  await Promise.all(parts);
  if (loadBalancer && services && slices)
    await startLoadBalancer(agent.context, loadBalancer, {
      ...{ nodes: agent.followed.nodes, services, slices, egress },
      servers: agent.apiServers.urls,
    });
  await late;
  await registration?.setReady();
  agent.isStarted = true;
  agent.context.logger.info({}, 'node is ready');
};

const nodeProblemNow = (agent: StartingAgent) =>
  agent.configuration.pods
    ? null
    : nodeProblem(
        agent.followed.own.get(agent.configuration.nodeName),
        agent.configuration.nodeName,
        agent.configuration.nodeAddress,
      );

const health = (agent: StartingAgent): ProxyHealth => {
  // Health checks fail until the agent has read all objects.
  const problem = agent.isStarted ? nodeProblemNow(agent) : 'the agent is starting';
  const unwritable = settingsProblem(agent.configuration);
  const known = agent.proxy?.health() ?? {
    healthy: problem === null,
    live: agent.isStarted || agent.networkProblem !== null,
    lastUpdated: agent.startedAt,
    families: [],
    problem,
  };
  return withProblems(
    { ...known, healthy: known.healthy && (agent.networkProblem ?? unwritable) === null },
    agent.networkProblem,
    unwritable,
    agent.missingRules.problem(),
    agent.certificate.problem,
    cacheProblem(oldest(agent.cached)),
  );
};

const watch = (agent: StartingAgent) => {
  const servers = startStatusServers({
    healthz: agent.configuration.healthzBindAddress,
    metrics: agent.configuration.metricsBindAddress,
    registry: agent.context.registry,
    clock: agent.context.clock,
    logger: agent.context.logger,
    health: () => health(agent),
    node: () => agent.followed.own.get(agent.configuration.nodeName),
    programmedSlices: () => agent.proxy?.programmedSlices ?? null,
    mode: () => agent.proxy?.mode ?? agent.configuration.proxy?.mode ?? '',
    configz: agent.configuration.configz,
    flags: agent.options.flags,
    version: agent.options.version,
    startedAt: agent.startedAt,
    onBindFailure: agent.configuration.bindFailureEnds ? agent.bindFailure.reject : null,
    count: (server, code) => agent.proxy?.metrics.answered(server, code),
  });
  agent.context.onClose(() => servers.close());
};

/** Opens the control socket and the port for commands. */
function openCommands(
  agent: StartingAgent,
  served: Pick<ControlSources, 'part' | 'services' | 'slices' | 'policies' | 'egress'>,
): void {
  const { context } = agent;
  const listToExplain = shareCalls(
    async () => indexObjects(await listObjectsToExplain(context.client, context.announcer)),
    context.clock,
  );
  const heldPods = shareCalls(async () => readHeldPods(), context.clock);
  const limitedClients = shareCalls(async () => readLimitedClients(), context.clock);
  const sources = {
    ...served,
    followed: agent.followed,
    health: () => health(agent),
    listToExplain,
    heldPods,
    limitedClients,
    limited: agent.limited,
  };
  const socket = startControlSocket(context, sources);
  context.onClose(() => socket.close());
  const port = startCommands(context, sources);
  context.onClose(() => port?.close());
}

/** Starts the process that runs the node's pods; null: the agent runs none. */
function startRuntime(
  { pods, network, stateDir }: AgentConfiguration,
  { runtimeProgram: program, pulls, clock, logger }: AgentOptions,
): RuntimeProcess | null {
  if (!pods || !network) return null;
  return startRuntimeProcess({
    ...{ program, pulls, stateDir, pods, clock },
    logger: logger.child({ part: 'pods' }),
  });
}

const settingsProblem = ({ network }: AgentConfiguration): string | null =>
  network ? sysctlProblem() : null;

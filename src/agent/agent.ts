import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Gauge, Registry } from 'prom-client';
import { createClient } from '../kube/client.ts';
import { createEventRecorder } from '../kube/events.ts';
import { follow, type Informer } from '../kube/informer.ts';
import { openObjectCache } from '../kube/object-cache.ts';
import { type KubeObject, type Node, RESOURCES, type Resource } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { createProcessMetrics } from '../proxy/process-metrics.ts';
import { type ProxyHealth, startStatusServers, withProblems } from '../proxy/status-servers.ts';
import { type AgentContext, type AgentOptions, addressesOf, type FollowOptions } from './agent-context.ts';
import { connectToApi } from './api-connection.ts';
import { startCommands } from './commands-part.ts';
import type { AgentConfiguration } from './configuration.ts';
import { startControlSocket } from './control-socket.ts';
import { startDnsFallback } from './dns-fallback-part.ts';
import { startDns } from './dns-part.ts';
import { createSliceTransform, trimNode, trimService } from './informer-transforms.ts';
import { openLateNetwork } from './late-network.ts';
import { startLoadBalancer } from './load-balancer-part.ts';
import { createMissingRules } from './missing-rules.ts';
import { podGateways } from './name-servers.ts';
import { startNetwork } from './network-part.ts';
import { registerNode } from './node-registration.ts';
import {
  nodeProblem,
  nodeWhen,
  ownNodeOrSubstitute,
  podNetworkProblem,
  reportNodeProblems,
} from './own-node.ts';
import { startPods } from './pods-part.ts';
import { mayReadPolicies, type PolicyPart, removeLeftPolicies, startPolicies } from './policy-part.ts';
import { type ProxyPart, startProxyPart } from './proxy-part.ts';

/** The folder of objects below the state directory, for a start without the API server. */
const CACHE_FOLDER = 'objects';

/** The running agent of one node. */
export interface Agent {
  /** Resolves when the node can run pods and has programmed all Services. */
  readonly ready: Promise<void>;
  readonly proxy: ProxyPart | null;
  /** Stops the agent; pods, addresses and rules stay, and traffic continues. */
  close(): Promise<void>;
}

/** Starts the enabled parts for the node whose network namespace this process is in. */
export async function startAgent(configuration: AgentConfiguration, options: AgentOptions): Promise<Agent> {
  const { clock, random, logger, signal } = options;
  for (const warning of configuration.warnings) logger.warn({}, warning);
  const registry = new Registry();
  const { onAnswer } = createProcessMetrics(registry, options.version);
  const transport = connectToApi(configuration, { ...options, onAnswer });
  const client = createClient(transport, `fairlead-agent/${options.version}`);
  const closers: (() => Promise<void> | void)[] = [() => transport.close()];
  const ownNode = (): Node =>
    nodes.get(configuration.nodeName) ?? {
      metadata: { name: configuration.nodeName, uid: configuration.nodeName },
    };
  const missingRules = createMissingRules({
    events: createEventRecorder({
      client,
      component: 'fairlead-agent',
      host: configuration.nodeName,
      clock,
      logger,
      signal,
    }),
    node: ownNode,
  });
  // A node that runs pods needs the API server for these; a local cluster's supervisor starts both together.
  const cache = configuration.pods
    ? null
    : openObjectCache({ folder: join(configuration.stateDir, CACHE_FOLDER), clock, logger });
  if (cache) closers.push(() => cache.close());
  const cached: Pick<Informer<KubeObject>, 'cachedAt'>[] = [];
  const context: AgentContext = {
    ...options,
    configuration,
    client,
    registry,
    missingRules,
    follow<T extends KubeObject>(resource: Resource<T>, { cacheAs, ...settings }: FollowOptions<T> = {}) {
      const informer = follow({ client, clock, random, logger, signal }, resource, {
        onMissingRule: (rule) => missingRules.set(resource, rule),
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
  mkdirSync(configuration.stateDir, { recursive: true, mode: 0o700 });
  const nodes = context.follow(RESOURCES.nodes, { transform: trimNode, cacheAs: 'nodes' });
  new Gauge({
    name: 'fairlead_cached_objects_age_seconds',
    help: 'Age of the objects of an earlier run that are used without the API server; 0: its own are used',
    registers: [registry],
    collect() {
      const at = oldest(cached);
      this.set(at === null ? 0 : (clock.now() - at) / 1000);
    },
  });
  let proxy: ProxyPart | null = null;
  let isStarted = false;
  let networkProblem: string | null = null;
  const reporting = { address: configuration.nodeAddress, clock, logger };

  const start = async () => {
    const { pods, network, dns, proxy: proxied, loadBalancer, nodeName } = configuration;
    watch(nodes);
    const wanted = dns || proxied || loadBalancer;
    const services = wanted
      ? context.follow(RESOURCES.services, { transform: trimService, cacheAs: 'services' })
      : null;
    const slices = wanted
      ? context.follow(RESOURCES.endpointSlices, {
          transform: createSliceTransform(),
          cacheAs: 'endpointslices',
        })
      : null;
    const serviceCidrs = proxied
      ? context.follow(RESOURCES.serviceCidrs, { optional: true, cacheAs: 'servicecidrs' })
      : null;
    const registration = pods
      ? await registerNode({
          ...options,
          client,
          nodes,
          nodeName,
          addresses: pods.nodeAddresses,
          kubeletPort: pods.port,
          maxPods: pods.maxPods,
          stateDir: configuration.stateDir,
        })
      : null;
    const own = { nodes, name: nodeName, signal };
    const lacks = (one: Node | undefined) => (network ? podNetworkProblem(one, nodeName) : null);
    const isComplete = (one: Node) => addressesOf(one).length > 0 && lacks(one) === null;
    // A node of a local cluster has registered itself: it waits for its pod networks only.
    const node = pods
      ? await nodeWhen(own, isComplete)
      : await ownNodeOrSubstitute({ ...own, ...reporting, isComplete });
    if (!pods) context.onClose(reportNodeProblems({ ...own, ...reporting }));
    const onProblem = (problem: string | null) => registration?.setNetworkProblem(problem);
    const policies = await startPolicyPart(context, nodes);
    const open = (from: Node) => startNetwork(context, from, nodes, policies, onProblem);
    // An external address may be one that this machine does not have.
    const known = nodes.get(nodeName);
    const isUsual = known?.status?.addresses?.some(({ type }) => type === 'InternalIP') === true;
    const podNetwork = network && known && isUsual && lacks(known) === null ? open(known) : null;
    const late =
      network && !podNetwork
        ? openLateNetwork({
            ...own,
            lacks,
            open,
            clock,
            logger,
            onProblem: (problem) => {
              networkProblem = problem;
            },
          })
        : null;
    const lateGateways = late?.then(() => podGateways(nodes.get(nodeName) ?? node)) ?? null;
    lateGateways?.catch(() => {});
    const parts: Promise<unknown>[] = [];
    if (dns && services && slices) {
      const gateways = podNetwork && known ? podGateways(known) : [];
      parts.push(startDns(context, dns, { services, slices, gateways, lateGateways }));
      const startFallback = async (addresses: readonly string[]) => {
        if (addresses.length === 0) return;
        await startDnsFallback(context, {
          nodes,
          cluster: dns.addresses,
          own: addresses,
          onChange: (others) => policies?.setNameServers([...dns.addresses, ...others]),
        });
      };
      parts.push(startFallback(gateways));
      void lateGateways?.then(startFallback).catch((error: unknown) => {
        if (!signal.aborted) logger.error({ err: error }, `DNS of other nodes: ${messageOf(error)}`);
      });
    }
    if (proxied && services && slices && serviceCidrs) {
      parts.push(
        startProxyPart(context, proxied, { node, nodes, services, slices, serviceCidrs, policies }).then(
          (started) => {
            proxy = started;
            const sources = { part: started, nodes, services, slices, policies };
            const socket = startControlSocket(context, sources);
            context.onClose(() => socket.close());
            const port = startCommands(context, sources);
            context.onClose(() => port?.close());
            return started.proxy.programmed;
          },
        ),
      );
    }
    if (pods && podNetwork) parts.push(startPods(context, podNetwork, nodes, slices));
    await Promise.all(parts);
    if (loadBalancer && services && slices)
      await startLoadBalancer(context, loadBalancer, { nodes, services, slices });
    await late;
    await registration?.setReady();
    isStarted = true;
    logger.info({}, 'node is ready');
  };
  const startedAt = clock.now();
  const nodeProblemNow = () =>
    configuration.pods
      ? null
      : nodeProblem(nodes.get(configuration.nodeName), configuration.nodeName, configuration.nodeAddress);
  const health = (): ProxyHealth => {
    // Health checks fail until the agent has read all objects.
    const problem = isStarted ? nodeProblemNow() : 'the agent is starting';
    const known = proxy?.health() ?? {
      healthy: problem === null,
      live: isStarted || networkProblem !== null,
      lastUpdated: startedAt,
      families: [],
      problem,
    };
    return withProblems(
      { ...known, healthy: known.healthy && networkProblem === null },
      networkProblem,
      missingRules.problem(),
      cacheProblem(oldest(cached)),
    );
  };
  const watch = (nodes: Informer<Node>) => {
    const servers = startStatusServers({
      healthz: configuration.healthzBindAddress,
      metrics: configuration.metricsBindAddress,
      registry,
      clock,
      logger,
      health,
      node: () => nodes.get(configuration.nodeName),
      mode: () => proxy?.mode ?? configuration.proxy?.mode ?? '',
      configz: configuration.configz,
      flags: options.flags,
      version: options.version,
      startedAt,
      onBindFailure: configuration.bindFailureEnds ? bindFailure.reject : null,
      count: (server, code) => proxy?.metrics.answered(server, code),
    });
    context.onClose(() => servers.close());
  };
  const bindFailure = Promise.withResolvers<never>();
  bindFailure.promise.catch(() => {});
  const ready = Promise.race([start(), bindFailure.promise]);
  ready.catch(() => {});
  return {
    ready,
    get proxy() {
      return proxy;
    },
    async close() {
      for (const close of closers.reverse()) await close();
    },
  };
}

/** Returns the time of the oldest objects of an earlier run that are used without the API server; null: none are. */
function oldest(informers: readonly Pick<Informer<KubeObject>, 'cachedAt'>[]): number | null {
  const times = informers.flatMap(({ cachedAt }) => cachedAt ?? []);
  return times.length === 0 ? null : Math.min(...times);
}

function cacheProblem(at: number | null): string | null {
  return at === null
    ? null
    : `the API server cannot be reached: using the objects of ${new Date(at).toISOString()}`;
}

async function startPolicyPart(context: AgentContext, nodes: Informer<Node>): Promise<PolicyPart | null> {
  const { policy } = context.configuration;
  if (policy?.enforce) return (await mayReadPolicies(context)) ? startPolicies(context, nodes) : null;
  if (policy) await removeLeftPolicies();
  return null;
}

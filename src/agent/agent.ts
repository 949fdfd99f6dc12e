import { mkdirSync } from 'node:fs';
import { Registry } from 'prom-client';
import { createClient } from '../kube/client.ts';
import { createEventRecorder } from '../kube/events.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import { createProcessMetrics } from '../proxy/process-metrics.ts';
import { type ProxyHealth, startStatusServers, withProblems } from '../proxy/status-servers.ts';
import { type AgentContext, type AgentOptions, addressesOf } from './agent-context.ts';
import { connectToApi } from './api-connection.ts';
import { startCommands } from './commands-part.ts';
import type { AgentConfiguration } from './configuration.ts';
import { startControlSocket } from './control-socket.ts';
import { startDnsFallback } from './dns-fallback-part.ts';
import { startDns } from './dns-part.ts';
import { createSliceTransform, trimNode, trimService } from './informer-transforms.ts';
import { startLoadBalancer } from './load-balancer-part.ts';
import { createMissingRules } from './missing-rules.ts';
import { podGateways } from './name-servers.ts';
import { startNetwork } from './network-part.ts';
import { registerNode } from './node-registration.ts';
import { nodeWhen, ownNodeOrSubstitute } from './own-node.ts';
import { startPods } from './pods-part.ts';
import { mayReadPolicies, type PolicyPart, removeLeftPolicies, startPolicies } from './policy-part.ts';
import { type ProxyPart, startProxyPart } from './proxy-part.ts';

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
  const context: AgentContext = {
    ...options,
    configuration,
    client,
    registry,
    missingRules,
    follow: (resource, settings = {}) =>
      startInformer({
        client,
        resource,
        clock,
        random,
        logger,
        signal,
        onMissingRule: (rule) => missingRules.set(resource, rule),
        ...settings,
      }),
    onClose: (close) => closers.push(close),
  };
  mkdirSync(configuration.stateDir, { recursive: true, mode: 0o700 });
  const nodes = context.follow(RESOURCES.nodes, { transform: trimNode });
  let proxy: ProxyPart | null = null;
  let isStarted = false;

  const start = async () => {
    const { pods, network, dns, proxy: proxied, loadBalancer, nodeName } = configuration;
    watch(nodes);
    const wanted = dns || proxied || loadBalancer;
    const services = wanted ? context.follow(RESOURCES.services, { transform: trimService }) : null;
    const slices = wanted
      ? context.follow(RESOURCES.endpointSlices, { transform: createSliceTransform() })
      : null;
    const serviceCidrs = proxied ? context.follow(RESOURCES.serviceCidrs, { optional: true }) : null;
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
    const isReady = (one: Node) =>
      addressesOf(one).length > 0 && (!network || (one.spec?.podCIDRs ?? []).length > 0);
    const isAlone = proxied !== null && !network && !pods && !dns && !loadBalancer;
    const node = isAlone
      ? await ownNodeOrSubstitute({ ...own, address: configuration.nodeAddress, clock, logger })
      : await nodeWhen(own, isReady);
    const onProblem = (problem: string | null) => registration?.setNetworkProblem(problem);
    const policies = await startPolicyPart(context, nodes);
    const podNetwork = network ? startNetwork(context, node, nodes, policies, onProblem) : null;
    const parts: Promise<unknown>[] = [];
    if (dns && services && slices) {
      const gateways = podNetwork ? podGateways(node) : [];
      parts.push(startDns(context, dns, { services, slices, gateways }));
      if (gateways.length > 0) {
        parts.push(
          startDnsFallback(context, {
            nodes,
            cluster: dns.addresses,
            own: gateways,
            onChange: (others) => policies?.setNameServers([...dns.addresses, ...others]),
          }),
        );
      }
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
    await registration?.setReady();
    isStarted = true;
    logger.info({ node: nodeName }, 'node is ready');
  };
  const startedAt = clock.now();
  const health = (): ProxyHealth => {
    // Health checks fail until the agent has read all objects.
    const known = proxy?.health() ?? {
      healthy: isStarted,
      lastUpdated: startedAt,
      families: [],
      problem: isStarted ? null : 'the agent is starting',
    };
    return withProblems(known, missingRules.problem());
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

async function startPolicyPart(context: AgentContext, nodes: Informer<Node>): Promise<PolicyPart | null> {
  const { policy } = context.configuration;
  if (policy?.enforce) return (await mayReadPolicies(context)) ? startPolicies(context, nodes) : null;
  if (policy) await removeLeftPolicies();
  return null;
}

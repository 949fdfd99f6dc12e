import { mkdirSync } from 'node:fs';
import { Registry } from 'prom-client';
import { createClient } from '../kube/client.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { inClusterCredentials, readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import { startStatusServers } from '../proxy/status-servers.ts';
import { type AgentContext, type AgentOptions, addressesOf } from './agent-context.ts';
import type { AgentConfiguration } from './configuration.ts';
import { startControlSocket } from './control-socket.ts';
import { startDns } from './dns-part.ts';
import { createSliceTransform, trimNode, trimService } from './informer-transforms.ts';
import { startLoadBalancer } from './load-balancer-part.ts';
import { podGateways } from './name-servers.ts';
import { startNetwork } from './network-part.ts';
import { registerNode } from './node-registration.ts';
import { startPods } from './pods-part.ts';
import { type ProxyPart, startProxyPart } from './proxy-part.ts';

/** One node's agent at work. */
export interface Agent {
  /** Resolves when the node can run pods and carries Services. */
  readonly ready: Promise<void>;
  readonly proxy: ProxyPart | null;
  /** Stops working; pods, addresses and rules stay, and traffic flows. */
  close(): Promise<void>;
}

/** Starts what the configuration switches on, for the node whose network namespace this process is in. */
export async function startAgent(configuration: AgentConfiguration, options: AgentOptions): Promise<Agent> {
  const { clock, random, logger, signal } = options;
  const credentials = configuration.kubeconfig
    ? readKubeconfig(configuration.kubeconfig)
    : inClusterCredentials();
  const transport = httpTransport(credentials);
  const client = createClient(transport, `fairlead-agent/${options.version}`);
  const closers: (() => Promise<void> | void)[] = [() => transport.close()];
  const context: AgentContext = {
    ...options,
    configuration,
    client,
    registry: new Registry(),
    follow: (resource, settings = {}) =>
      startInformer({ client, resource, clock, random, logger, signal, ...settings }),
    onClose: (close) => closers.push(close),
  };
  mkdirSync(configuration.stateDir, { recursive: true, mode: 0o700 });
  let proxy: ProxyPart | null = null;

  const start = async () => {
    const { pods, network, dns, proxy: proxied, loadBalancer, nodeName } = configuration;
    const nodes = context.follow(RESOURCES.nodes, { transform: trimNode });
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
          nodeName,
          addresses: pods.nodeAddresses,
          kubeletPort: pods.port,
          stateDir: configuration.stateDir,
        })
      : null;
    const node = await nodeWhen(
      nodes,
      nodeName,
      (one) => addressesOf(one).length > 0 && (!network || (one.spec?.podCIDRs ?? []).length > 0),
      signal,
    );
    const onProblem = (problem: string | null) => registration?.setNetworkProblem(problem);
    const podNetwork = network ? startNetwork(context, node, nodes, onProblem) : null;
    const parts: Promise<unknown>[] = [];
    if (dns && services && slices) {
      const gateways = podNetwork ? podGateways(node) : [];
      parts.push(startDns(context, dns, { services, slices, gateways }));
    }
    if (proxied && services && slices && serviceCidrs) {
      parts.push(
        startProxyPart(context, proxied, { node, nodes, services, slices, serviceCidrs }).then((started) => {
          proxy = started;
          watch(started, nodes);
          const socket = startControlSocket(context, { part: started, nodes, services, slices });
          context.onClose(() => socket.close());
          return started.proxy.programmed;
        }),
      );
    }
    if (pods && podNetwork) parts.push(startPods(context, podNetwork, nodes));
    await Promise.all(parts);
    if (loadBalancer && services && slices)
      await startLoadBalancer(context, loadBalancer, { nodes, services, slices });
    await registration?.setReady();
    logger.info({ node: nodeName }, 'node is ready');
  };
  const watch = (part: ProxyPart, nodes: Informer<Node>) => {
    const servers = startStatusServers({
      healthz: configuration.healthzBindAddress,
      metrics: configuration.metricsBindAddress,
      registry: context.registry,
      clock,
      logger,
      health: part.health,
      node: () => nodes.get(configuration.nodeName),
      mode: () => part.mode,
      configuration,
      count: part.metrics.answered,
    });
    context.onClose(() => servers.close());
  };
  const ready = start();
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

/** The node's object as soon as it satisfies `wanted`. */
function nodeWhen(
  nodes: Informer<Node>,
  name: string,
  wanted: (node: Node) => boolean,
  signal: AbortSignal,
): Promise<Node> {
  return new Promise((resolve, reject) => {
    const look = (node: Node) => {
      if (node.metadata?.name === name && wanted(node)) resolve(node);
    };
    const stop = nodes.handle({ onAdd: look, onUpdate: look });
    signal.addEventListener('abort', () => {
      stop();
      reject(signal.reason);
    });
  });
}

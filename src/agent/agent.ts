import { mkdirSync, readFileSync } from 'node:fs';
import { Registry } from 'prom-client';
import { createForwarder } from '../dns/forwarder.ts';
import { createDnsMetrics } from '../dns/metrics.ts';
import { upstreamsFromResolvConf } from '../dns/resolv-conf.ts';
import { type DnsServer, startDnsServer } from '../dns/server.ts';
import { createZone } from '../dns/zone.ts';
import { addAddress } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { type Client, createClient } from '../kube/client.ts';
import { createEventRecorder } from '../kube/events.ts';
import { type Informer, startInformer } from '../kube/informer.ts';
import { inClusterCredentials, readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import {
  type EndpointSlice,
  type KubeObject,
  type Node,
  RESOURCES,
  type Resource,
  type Service,
} from '../kube/types.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { NodeNetwork } from '../network/node-network.ts';
import { peerNode } from '../network/peer-node.ts';
import { openPodNetwork, type PodNetwork } from '../network/pod-network.ts';
import { startKubelet } from '../runtime/kubelet.ts';
import type { BuiltinImage } from '../runtime/options.ts';
import { readNodeView } from '../service/node-view.ts';
import { createServiceTable } from '../service/service-table.ts';
import type { AgentConfiguration, DnsConfiguration, ProxyConfiguration } from './configuration.ts';
import { openDataplane } from './dataplanes.ts';
import { registerNode } from './node-registration.ts';
import { type ServiceProxy, startProxy } from './proxy.ts';

export interface AgentOptions {
  readonly builtinImages: Readonly<Record<string, BuiltinImage>>;
  readonly version: string;
  readonly clock: Clock;
  /** 0 ≤ n < 1 */
  readonly random: () => number;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** One node's agent at work. */
export interface Agent {
  /** Resolves when the node can run pods and carries Services. */
  readonly ready: Promise<void>;
  readonly proxy: ServiceProxy | null;
  /** Stops working; pods, addresses and rules stay, and traffic flows. */
  close(): Promise<void>;
}

interface Shared extends AgentOptions {
  readonly configuration: AgentConfiguration;
  readonly client: Client;
  follow<T extends KubeObject>(
    resource: Resource<T>,
    selectors?: { labelSelector?: string; fieldSelector?: string },
  ): Informer<T>;
}

/** Starts what the configuration switches on, for the node whose network namespace this process is in. */
export async function startAgent(configuration: AgentConfiguration, options: AgentOptions): Promise<Agent> {
  const { clock, random, logger, signal } = options;
  const credentials = configuration.kubeconfig
    ? readKubeconfig(configuration.kubeconfig)
    : inClusterCredentials();
  const transport = httpTransport(credentials);
  const client = createClient(transport, `fairlead-agent/${options.version}`);
  const shared: Shared = {
    ...options,
    configuration,
    client,
    follow: (resource, selectors = {}) =>
      startInformer({ client, resource, clock, random, logger, signal, ...selectors }),
  };
  mkdirSync(configuration.stateDir, { recursive: true, mode: 0o700 });
  const closers: (() => Promise<void> | void)[] = [() => transport.close()];
  let proxy: ServiceProxy | null = null;

  const start = async () => {
    const { pods, network, dns, proxy: proxied, nodeName } = configuration;
    const nodes = shared.follow(RESOURCES.nodes);
    const services = dns || proxied ? shared.follow(RESOURCES.services) : null;
    const slices = dns || proxied ? shared.follow(RESOURCES.endpointSlices) : null;
    const registration = pods
      ? await registerNode({
          client,
          nodeName,
          addresses: pods.nodeAddresses,
          kubeletPort: pods.port,
          version: options.version,
          clock,
          random,
          logger,
          signal,
        })
      : null;
    const node = await nodeWhen(
      nodes,
      nodeName,
      (one) => addressesOf(one).length > 0 && (!network || (one.spec?.podCIDRs ?? []).length > 0),
      signal,
    );
    const podNetwork = network ? startNetwork(shared, node, nodes, closers) : null;
    const parts: Promise<unknown>[] = [];
    if (dns && services && slices) parts.push(startDns(shared, dns, services, slices, closers));
    if (proxied && services && slices) {
      parts.push(
        startProxying(shared, proxied, node, nodes, services, slices).then((started) => {
          proxy = started;
          closers.push(() => started.close());
          return started.programmed;
        }),
      );
    }
    if (pods && podNetwork) parts.push(startPods(shared, podNetwork, closers));
    await Promise.all(parts);
    await registration?.setReady();
    logger.info({ node: nodeName }, 'node is ready');
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

function startNetwork(
  shared: Shared,
  node: Node,
  nodes: Informer<Node>,
  closers: (() => Promise<void> | void)[],
): PodNetwork {
  const { configuration, logger } = shared;
  const network = new NodeNetwork({
    node: configuration.nodeName,
    addresses: configuration.pods?.nodeAddresses ?? addressesOf(node),
    podCidrs: node.spec?.podCIDRs ?? [],
    overlay: configuration.network?.overlay ?? 'vxlan',
    serviceCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
  });
  let queued = false;
  const sync = () => {
    if (queued) return;
    queued = true;
    setImmediate(() => {
      queued = false;
      const peers = nodes.list().filter((one) => one.metadata?.name !== configuration.nodeName);
      for (const failure of network.syncRoutes(peers.map(peerNode))) {
        logger.error(
          { node: failure.node, err: failure.error },
          `no route to ${failure.destination}: ${failure.error.message}`,
        );
      }
    });
  };
  nodes.handle({ onAdd: sync, onUpdate: sync, onDelete: sync });
  closers.push(() => network.close());
  return openPodNetwork({ network, stateDir: configuration.stateDir });
}

async function startPods(
  shared: Shared,
  network: PodNetwork,
  closers: (() => Promise<void> | void)[],
): Promise<void> {
  const { configuration, client, clock, random, logger, signal } = shared;
  const { pods, dns } = configuration;
  if (!pods) return;
  const kubelet = await startKubelet({
    client,
    nodeName: configuration.nodeName,
    nodeAddresses: pods.nodeAddresses,
    stateDir: configuration.stateDir,
    cgroupParent: pods.cgroupParent,
    network,
    clusterDns: dns?.addresses ?? [],
    clusterDomain: configuration.clusterDomain,
    apiService: { host: pods.apiServiceHost, port: pods.apiServicePort },
    builtinImages: shared.builtinImages,
    server: {
      port: pods.port,
      cert: readFileSync(pods.tls.cert, 'utf8'),
      key: readFileSync(pods.tls.key, 'utf8'),
      clientCa: readFileSync(pods.tls.clientCa, 'utf8'),
    },
    logger: logger.child({ part: 'pods' }),
    clock,
    random,
    signal,
  });
  closers.push(() => kubelet.close());
  await kubelet.ready;
}

/** Answers DNS on the cluster's addresses, which become the node's own: pods reach it without translation. */
async function startDns(
  shared: Shared,
  dns: DnsConfiguration,
  services: Informer<Service>,
  slices: Informer<EndpointSlice>,
  closers: (() => Promise<void> | void)[],
): Promise<DnsServer> {
  const { configuration, logger, signal, random, clock } = shared;
  const socket = openRouteSocket();
  try {
    const loopback = getLink(socket, 'lo');
    for (const address of dns.addresses) {
      if (loopback)
        addAddress(socket, { device: loopback.index, address, prefix: address.includes(':') ? 128 : 32 });
    }
  } finally {
    socket.close();
  }
  const metrics = createDnsMetrics(new Registry());
  const zone = createZone({
    domain: configuration.clusterDomain,
    ttl: dns.ttlSeconds,
    podMode: dns.podRecords,
    serverAddresses: [...dns.addresses],
    reverseCidrs: (configuration.proxy?.serviceCidrs ?? []).map((cidr) => cidr.text),
    now: clock.now,
    random,
  });
  services.handle({
    onAdd: (service) => zone.setService(service),
    onUpdate: (service) => zone.setService(service),
    onDelete: ({ metadata }) => zone.deleteService(metadata?.namespace ?? '', metadata?.name ?? ''),
  });
  slices.handle({
    onAdd: (slice) => zone.setSlice(slice),
    onUpdate: (slice) => zone.setSlice(slice),
    onDelete: ({ metadata }) => zone.deleteSlice(metadata?.namespace ?? '', metadata?.name ?? ''),
  });
  const upstreams =
    dns.upstreams.length > 0
      ? [...dns.upstreams]
      : upstreamsFromResolvConf(readOptional('/etc/resolv.conf'), [...dns.addresses]);
  const forwarder =
    upstreams.length > 0 ? createForwarder({ upstreams, metrics, logger, clock, random }) : null;
  const server = await startDnsServer({
    listeners: dns.addresses.map((address) => ({ address, port: 53 })),
    zone,
    forwarder,
    metrics,
    logger: logger.child({ part: 'dns' }),
    signal,
  });
  closers.push(() => server.close());
  await Promise.all([services.synced, slices.synced]);
  zone.setSynced(true);
  return server;
}

async function startProxying(
  shared: Shared,
  proxied: ProxyConfiguration,
  node: Node,
  nodes: Informer<Node>,
  services: Informer<Service>,
  slices: Informer<EndpointSlice>,
): Promise<ServiceProxy> {
  const { configuration, client, clock, logger, signal } = shared;
  const log = logger.child({ part: 'proxy' });
  const events = createEventRecorder({
    client,
    component: 'fairlead-proxy',
    host: configuration.nodeName,
    clock,
    logger,
    signal,
  });
  const families = familiesOf(node);
  const settings = {
    ...proxied,
    defaultNodePortAddresses: proxied.mode === 'nftables' ? ('primary' as const) : ('all' as const),
    ownServiceAddresses: configuration.dns?.addresses ?? [],
    families,
  };
  const { view, warnings } = readNodeView(node, settings);
  for (const warning of warnings) log.warn({}, warning);
  const table = createServiceTable(view);
  const dataplane = await openDataplane(proxied.mode, {
    families,
    logger: log,
    onForeignChange: () => proxy.check(),
  });
  const proxy = startProxy({
    table,
    dataplane,
    clock,
    logger: log,
    minSyncPeriodMs: proxied.minSyncPeriodMs,
    syncPeriodMs: proxied.syncPeriodMs,
    onFindings(findings) {
      for (const { object, severity, reason, message } of findings) {
        log.warn({ object: `${object.kind} ${object.namespace}/${object.name}`, reason }, message);
        const subject = services.get(`${object.namespace}/${object.name}`);
        if (object.kind === 'Service' && subject) {
          events.event(
            subject,
            severity === 'error' ? 'Warning' : 'Normal',
            reason,
            message,
            RESOURCES.services,
          );
        }
      }
    },
  });
  const started = Promise.all([services.synced, slices.synced]);
  let informed = false;
  const notify = () => {
    if (informed) proxy.notify();
  };
  services.handle({
    onAdd: (service) => {
      if (isOurs(service)) table.setService(service);
      notify();
    },
    onUpdate: (service) => {
      if (isOurs(service)) table.setService(service);
      else table.deleteService(service.metadata?.namespace ?? '', service.metadata?.name ?? '');
      notify();
    },
    onDelete: ({ metadata }) => {
      table.deleteService(metadata?.namespace ?? '', metadata?.name ?? '');
      notify();
    },
  });
  slices.handle({
    onAdd: (slice) => {
      table.setSlice(slice);
      notify();
    },
    onUpdate: (slice) => {
      table.setSlice(slice);
      notify();
    },
    onDelete: ({ metadata }) => {
      table.deleteSlice(metadata?.namespace ?? '', metadata?.name ?? '');
      notify();
    },
  });
  nodes.handle({
    onUpdate(changed) {
      if (changed.metadata?.name !== configuration.nodeName) return;
      try {
        table.setNode(readNodeView(changed, settings).view);
        notify();
      } catch (error) {
        log.error({ err: error }, `the node's view stays as it was: ${messageOf(error)}`);
      }
    },
  });
  // Nothing is programmed from half of the objects: what is missing would look deleted.
  await started;
  informed = true;
  proxy.notify();
  return proxy;
}

const NOT_OURS = ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'];

/** Services with these labels belong to another proxy, or to none (KEP-2447). */
function isOurs(service: Service): boolean {
  const labels = (service.metadata?.labels ?? {}) as Record<string, string>;
  return !NOT_OURS.some((label) => label in labels);
}

function addressesOf(node: Node): string[] {
  return (node.status?.addresses ?? []).filter((one) => one.type === 'InternalIP').map((one) => one.address);
}

function familiesOf(node: Node): IPFamily[] {
  const families = new Set(addressesOf(node).flatMap((address) => familyOf(address) ?? []));
  if (families.size === 0) {
    throw new FairleadError(`node ${node.metadata?.name} has no InternalIP`, {
      op: 'start proxy',
      code: 'bad-config',
      hint: 'give the node an address',
    });
  }
  return [...families];
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

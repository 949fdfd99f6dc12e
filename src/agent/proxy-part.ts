import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CountedPackets } from '../dataplane/abilities.ts';
import { type ConntrackReconciler, createConntrackReconciler } from '../dataplane/conntrack/reconciler.ts';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { dial } from '../failover/dial.ts';
import { EJECTION_RULES } from '../failover/ejection-rules.ts';
import { createFlowWatch, type FlowWatch } from '../flows/flow-watch.ts';
import { createEventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import { type EndpointSlice, type Node, RESOURCES, type Service, type ServiceCidr } from '../kube/types.ts';
import type { IPFamily } from '../lib/address.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { peerNode, sourceAddresses } from '../network/peer-node.ts';
import { applyConntrackSettings } from '../proxy/conntrack-settings.ts';
import { startFailoverPart } from '../proxy/failover-part.ts';
import { watchGoneEndpoints } from '../proxy/gone-endpoints.ts';
import { createHealthCheckServers } from '../proxy/health-check-servers.ts';
import { createProxyEvents } from '../proxy/proxy-events.ts';
import { proxyHealth } from '../proxy/proxy-health.ts';
import { type ServiceProxy, startProxy } from '../proxy/proxy-loop.ts';
import { createProxyMetrics, type ProxyMetrics } from '../proxy/proxy-metrics.ts';
import { createServiceConnections } from '../proxy/service-connections.ts';
import { feedServices } from '../proxy/service-feed.ts';
import type { ProxyHealth } from '../proxy/status-servers.ts';
import type { NodeView } from '../service/model.ts';
import { type NodeSettings, readNodeView } from '../service/node-view.ts';
import { createServiceTable } from '../service/service-table.ts';
import type { AgentConfiguration, ProxyConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import { openDataplane } from './dataplanes.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import { adoptServers } from './kube-proxy-state.ts';
import { createModeSwitch, modeOf } from './mode-switch.ts';
import { adoptOtherServers, bpfPlace } from './other-proxies.ts';
import { familiesOf, nodeProblem, withAddress } from './own-node.ts';
import type { PolicyPart } from './policy-part.ts';
import { drainProxy } from './proxy-drain.ts';
import { findOtherProxies, takeOverNode } from './proxy-take-over.ts';
import { serviceNetworks } from './service-networks.ts';
import { followVersions } from './slice-versions.ts';
import { createSynTimers, type SynTimers } from './syn-timers.ts';

/** The proxy of one node: loop, events, health checks, failover, connection tracking. */
export interface ProxyPart {
  readonly proxy: ServiceProxy;
  readonly metrics: ProxyMetrics;
  readonly mode: Mode;
  /** Returns the node as the forwarding table has it in a mode. */
  nodeIn(mode: Mode): NodeView;
  /** The version of the EndpointSlices that the kernel has, and by which no stale flow is left; null: none. */
  readonly programmedSlices: string | null;
  /** What `fairlead flows` shows. */
  readonly flows: FlowWatch;
  health(): ProxyHealth;
  /** Switches the proxy mode; the previous one is removed when the new one is complete. */
  switchMode(mode: Mode): Promise<void>;
  /** See Agent. */
  drain(): Promise<void>;
}

export interface ProxySources {
  readonly node: Node;
  readonly followed: FollowedNodes;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** Networks of cluster IPs (KEP-1880); without any, those of the configuration are used. */
  readonly serviceCidrs: Informer<ServiceCidr>;
  readonly policies: PolicyPart | null;
}

/** The time after the first programming, which other parts of a starting node wait for. */
const SYN_TIMERS_AFTER_MS = 1000;

/** Starts the proxy. Resolves when the objects are known; `proxy.programmed` resolves when the kernel has them. */
export async function startProxyPart(
  context: AgentContext,
  proxied: ProxyConfiguration,
  sources: ProxySources,
): Promise<ProxyPart> {
  const { configuration, clock, registry } = context;
  const { node, followed, services, slices, serviceCidrs, policies } = sources;
  const logger = context.logger.child({ part: 'proxy' });
  const events = createEventRecorder({
    ...context,
    component: 'fairlead-proxy',
    host: configuration.nodeName,
  });
  const place = bpfPlace(configuration.pods?.cgroupParent ?? null);
  const { evidence, others } = await findOtherProxies(context, proxied, place, logger);
  const families = familiesOf(node);
  const startedAt = clock.now();
  let self = node;
  const networks = () => serviceNetworks(serviceCidrs.list()) ?? proxied.serviceCidrs;
  const readView = (mode: Mode) =>
    readNodeView(
      self,
      viewSettings(mode, configuration, proxied, self, { families, serviceCidrs: networks() }),
    );
  const firstMode = modeOf(node) ?? proxied.mode;
  const { view, warnings } = readView(firstMode);
  for (const warning of warnings) logger.warn({}, warning);
  const table = createServiceTable(view);
  const metrics = createProxyMetrics({
    ...{ registry, clock, families },
    mode: () => modes.mode,
    map: () => proxy.map,
    hasShortTimers: () => timers.current() !== null,
    countedPackets: () => countPackets(() => proxy, logger),
  });
  /** Modes whose connections this process copies. */
  const relays = new Set<Dataplane>();
  /** `ipvsScheduler` null: the mode is opened only to be removed. */
  const open = async (wanted: Mode, ipvsScheduler: string | null = proxied.ipvsScheduler) => {
    const dataplane = await openDataplane(wanted, {
      ...{ families, logger, ipvsScheduler },
      onForeignChange: () => proxy.check(),
      onOutcome: (outcome) => failover.report(outcome),
      ...(policies ? { policies } : {}),
      cgroupParent: configuration.pods?.cgroupParent ?? null,
      ipvsTimeouts: proxied.ipvsTimeouts,
    });
    if (dataplane.abilities.connections?.drain) relays.add(dataplane);
    return dataplane;
  };
  const modes = createModeSwitch({
    stateDir: configuration.stateDir,
    mode: firstMode,
    open,
    async switchTo(next) {
      await proxy.switchTo(next);
      flows.modeChanged();
      proxiedNodes?.tell();
      await timers.follow();
    },
    onKept: () => proxy.notify(),
    onMode: (mode) => table.setNode(readView(mode).view),
    node: () => self,
    ...{ events, clock, logger, signal: context.signal },
  });
  const proxiedNodes = policies
    ? tellProxies(followed, policies, configuration.nodeName, () => modes.mode)
    : null;
  const timers = createProxyTimers(context, logger, () => [modes.mode, networks()]);
  const reports = createProxyEvents({ nodeName: configuration.nodeName, services, events, logger });
  applyConntrackSettings(proxied.conntrack, availableParallelism(), logger);
  const conntrack = createConntrackReconciler({
    ...{ families, logger, clock },
    isListener: (at) => proxy.isListener(at),
    startsEmpty: context.startsUntracked,
    onPass: ({ family, durationMs, deleted }) => metrics.conntrackPass(family, durationMs / 1000, deleted),
  });
  context.onClose(() => conntrack.close());
  const health = () => partHealth(context, proxied, { proxy, startedAt, families, nodes: followed.nodes });
  const checks = createHealthCheckServers({
    logger,
    isProxyHealthy: () => health().healthy,
    onFailure: reports.healthCheckFailed,
  });
  context.onClose(() => checks.close());

  if (firstMode === 'ipvs') {
    if (evidence === null) await adoptServers(proxied.ipvsExcludedCidrs, logger);
    await adoptOtherServers(others);
  }
  const dataplane = await open(firstMode);
  const versions = followVersions(slices);
  context.onClose(versions.close);
  const proxy = startProxy({
    ...{ table, dataplane, clock, logger },
    minSyncPeriodMs: proxied.minSyncPeriodMs,
    syncPeriodMs: proxied.syncPeriodMs,
    version: versions.latest,
    onApplied(applied) {
      metrics.programmed(applied.report, applied.whole, applied.seconds);
      if (applied.whole) conntrack.sync(applied.map);
      else conntrack.apply(applied.change);
      checks.update(applied.map.healthChecks, applied.map.node);
      void conntrack.passed().then(() => versions.programmed(applied.version));
    },
    onDrained() {
      if (proxy.map) conntrack.sync(proxy.map);
    },
    onFailed: (whole) => metrics.failed(whole),
    onRefused: reports.refused,
    onFindings: reports.findings,
    onDrift(drifts) {
      metrics.drifted(drifts);
      reports.drifted(self, drifts);
    },
  });
  context.onClose(() => proxy.close());
  const flows = watchFlows(context, { proxy, policies, logger });
  context.onClose(() => flows.close());
  const failover = startFailoverPart({
    nodeName: configuration.nodeName,
    ...{ families, clock, logger, table, services, events, metrics },
    connections: createServiceConnections({ registry, map: () => proxy.map, mode: () => modes.mode }),
    mode: () => modes.mode,
    map: () => proxy.map,
    shortTimers: () => timers.current(),
    ...(policies ? { mayBeDenied: policies.mayBeDenied } : {}),
    program: () => proxy.notify({ urgent: true }),
  });
  context.onClose(() => failover.close());
  await Promise.all([services.synced, slices.synced]);
  const gone = watchGone(context, { slices, followed, proxy, conntrack, logger });
  context.onClose(() => gone.close());
  if (policies && isProxy(modes.mode)) {
    proxiedNodes?.tell();
    // Before that, the proxy would let connections pass that policies deny.
    await policies.ready;
  }
  // All existing objects must be in the table before the first programming: missing ones would look deleted.
  feedServices({ table, services, slices, metrics, notify: () => proxy.notify() });
  proxy.notify();
  const updateView = () => {
    table.setNode(readView(modes.mode).view);
    proxy.notify();
    void timers.follow();
  };
  serviceCidrs.handle({ onAdd: updateView, onUpdate: updateView, onDelete: updateView });
  followOwnNode(context, followed.nodes, logger, {
    apply(changed) {
      self = changed;
      updateView();
    },
    applied: modes.follow,
  });
  proxiedNodes?.follow();
  void proxy.programmed.then(timers.startLater);
  void proxy.programmed.then(async () => {
    await modes.removeEarlier((earlier) => open(earlier, null));
    await takeOverNode(context, proxied, logger, {
      ...{ place, families, mode: () => modes.mode, isKubeProxyLeft: evidence === null },
      report: (reason, message) => events.event(self, 'Normal', reason, message, RESOURCES.nodes),
    });
  });
  return {
    proxy,
    metrics,
    get mode() {
      return modes.mode;
    },
    nodeIn: (mode) => readView(mode).view,
    get programmedSlices() {
      return versions.latestProgrammed();
    },
    flows,
    health,
    switchMode: modes.switchMode,
    drain: () => drainProxy({ modes, isProxy: isProxy(modes.mode), proxy, relays, clock, logger }),
  };
}

/** Reads what the rules of iptables mode have counted; null: another mode, or they cannot be read. */
async function countPackets(proxy: () => ServiceProxy, logger: Logger): Promise<CountedPackets | null> {
  try {
    return (await proxy().dataplane.abilities.counters?.read()) ?? null;
  } catch (error) {
    logger.warn({ error: messageOf(error) }, 'failed to read the packet counters of iptables rules');
    return null;
  }
}

/** Ends the connections to endpoints that are gone. */
function watchGone(
  { clock }: AgentContext,
  {
    slices,
    followed,
    proxy,
    conntrack,
    logger,
  }: Pick<ProxySources, 'slices' | 'followed'> & {
    readonly proxy: ServiceProxy;
    readonly conntrack: ConntrackReconciler;
    readonly logger: Logger;
  },
): { close(): void } {
  return watchGoneEndpoints({
    slices,
    isNodeReady: followed.isReady,
    clock,
    logger,
    dial: (endpoint) => dial(endpoint, EJECTION_RULES.agentUnansweredMs, clock),
    // Connections that a mode tracks itself cannot be listed: every endpoint may have some.
    connected: (endpoints) =>
      proxy.dataplane.abilities.connections ? endpoints : conntrack.connected(endpoints),
    async end(endpoints) {
      await proxy.dataplane.abilities.connections?.end(endpoints);
      await conntrack.endConnections(endpoints);
    },
  });
}

function watchFlows(
  { configuration, clock }: AgentContext,
  {
    proxy,
    policies,
    logger,
  }: { readonly proxy: ServiceProxy; readonly policies: PolicyPart | null; readonly logger: Logger },
): FlowWatch {
  return createFlowWatch({
    dataplane: () => proxy.dataplane,
    logger,
    clock,
    monotonic: () => process.hrtime.bigint(),
    sleep: (ms) => sleep(ms),
    domain: configuration.clusterDomain,
    tables: () => ({
      map: proxy.map,
      policies: policies && policies.table.policyCount > 0 ? policies.table : null,
    }),
  });
}

function partHealth(
  { configuration: { nodeName, nodeAddress }, clock }: AgentContext,
  { syncPeriodMs }: ProxyConfiguration,
  {
    proxy,
    startedAt,
    families,
    nodes,
  }: {
    readonly proxy: ServiceProxy;
    readonly startedAt: number;
    readonly families: readonly IPFamily[];
    readonly nodes: FollowedNodes['nodes'];
  },
): ProxyHealth {
  const { lastAppliedAt, pendingSince, failure } = proxy;
  return proxyHealth({
    ...{ now: clock.now(), startedAt, lastAppliedAt, pendingSince, failure, families },
    syncPeriodMs,
    nodeProblem: nodeProblem(nodes.get(nodeName), nodeName, nodeAddress),
  });
}

/**
 * Returns true if the proxy on this node accepts connections to Services and opens connections to endpoints
 * itself.
 */
const isProxy = (mode: Mode): boolean => modeDiffers(mode, 'server-sees-node');

/**
 * Returns how the node recognizes its pods. Userspace mode answers from the node's own sockets, so a reply to a pod of
 * another node is not lost as in the other modes: only the node's own pods are local there.
 */
function localDetectionIn(
  mode: Mode,
  { detectLocalMode, clusterCidrs }: ProxyConfiguration,
  { spec }: Node,
): ProxyConfiguration['detectLocalMode'] {
  const isByCluster = detectLocalMode === 'ClusterCIDR' && clusterCidrs.length > 0;
  const hasOwnCidr = (spec?.podCIDR ?? '') !== '';
  return isByCluster && hasOwnCidr && modeDiffers(mode, 'other-nodes-pods-are-outside')
    ? 'NodeCIDR'
    : detectLocalMode;
}

/** Returns the settings by which a mode reads the node. */
function viewSettings(
  mode: Mode,
  { dns }: AgentConfiguration,
  proxied: ProxyConfiguration,
  node: Node,
  { families, serviceCidrs }: Pick<NodeSettings, 'families' | 'serviceCidrs'>,
): NodeSettings {
  return {
    ...proxied,
    serviceCidrs,
    detectLocalMode: localDetectionIn(mode, proxied, node),
    defaultNodePortAddresses: modeDiffers(mode, 'node-ports-on-primary-addresses') ? 'primary' : 'all',
    ownServiceAddresses: dns?.addresses ?? [],
    families,
  };
}

/** Tells the policies which addresses the proxies of other nodes have, in a mode in which they check policies. */
function tellProxies(
  followed: FollowedNodes,
  policies: PolicyPart,
  nodeName: string,
  mode: () => Mode,
): { tell(): void; follow(): void } {
  const allNodes = followed.allNodes();
  const tell = () => {
    const others = allNodes.list().filter(({ metadata }) => metadata?.name !== nodeName);
    policies.setProxies(
      isProxy(mode()) ? others.flatMap((one) => sourceAddresses(peerNode(one))).sort() : null,
    );
  };
  return { tell, follow: () => void allNodes.handle({ onAdd: tell, onUpdate: tell, onDelete: tell }) };
}

/** The short SYN timers of the node's sockets, which follow the mode and the Service networks. */
function createProxyTimers(
  { configuration, clock, onClose }: AgentContext,
  logger: Logger,
  wanted: () => Parameters<SynTimers['follow']>,
) {
  const timers = createSynTimers({ cgroupParent: configuration.pods?.cgroupParent ?? null, logger });
  onClose(() => timers.close());
  let hasStarted = false;
  const follow = async () => {
    if (hasStarted) await timers.follow(...wanted());
  };
  return {
    current: () => timers.current,
    follow,
    /** Starts to follow when the other parts of a starting node have had time. */
    startLater: () =>
      onClose(
        clock.after(SYN_TIMERS_AFTER_MS, () => {
          hasStarted = true;
          void follow();
        }),
      ),
  };
}

/** Follows the node's own object. `apply`: applies it, with the configured address; `applied`: follows, even if that failed. */
function followOwnNode(
  { configuration: { nodeName, nodeAddress } }: AgentContext,
  nodes: FollowedNodes['nodes'],
  logger: Logger,
  { apply, applied }: { readonly apply: (node: Node) => void; readonly applied: (node: Node) => void },
): void {
  const follow = (changed: Node) => {
    if (changed.metadata?.name !== nodeName) return;
    try {
      apply(withAddress(changed, nodeAddress));
    } catch (error) {
      logger.error(
        { err: error },
        `failed to apply the node's new settings, the previous ones stay in use: ${messageOf(error)}`,
      );
    }
    applied(changed);
  };
  nodes.handle({ onAdd: follow, onUpdate: follow });
}

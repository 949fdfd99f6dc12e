import { setTimeout as sleep } from 'node:timers/promises';
import type { CountedPackets } from '../dataplane/abilities.ts';
import type { ConntrackReconciler } from '../dataplane/conntrack/reconciler.ts';
import type { Mode } from '../dataplane/dataplane.ts';
import { dial } from '../failover/dial.ts';
import { EJECTION_RULES } from '../failover/ejection-rules.ts';
import type { FlowWatch } from '../flows/flow-watch.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { peerNode, sourceAddresses } from '../network/peer-node.ts';
import { watchGoneEndpoints } from '../proxy/gone-endpoints.ts';
import { createProxyEvents } from '../proxy/proxy-events.ts';
import { proxyHealth } from '../proxy/proxy-health.ts';
import type { ServiceProxy } from '../proxy/proxy-loop.ts';
import { createProxyMetrics, type ProxyMetrics } from '../proxy/proxy-metrics.ts';
import { createServiceConnections } from '../proxy/service-connections.ts';
import type { ProxyHealth } from '../proxy/status-servers.ts';
import type { ModeSwitch } from './mode-switch.ts';
import type { NodeProxy } from './node-proxy.ts';
import { nodeProblem } from './own-node.ts';
import type { PolicyPart } from './policy-part.ts';
import { opensConnections } from './proxy-plan.ts';
import type { SliceVersions } from './slice-versions.ts';
import type { SynTimers } from './syn-timers.ts';

/** The time after the first programming, which other parts of a starting node wait for. */
const SYN_TIMERS_AFTER_MS = 1000;

/** Starts the metrics, and the reports of problems as events. */
export function startMetrics(
  { context, plan, sources, logger, events, stream, self }: NodeProxy,
  {
    proxy,
    modes,
    timers,
  }: { readonly proxy: ServiceProxy; readonly modes: ModeSwitch; readonly timers: ProxyTimers },
): ProxyMetrics {
  const metrics = createProxyMetrics({
    ...{ registry: context.registry, clock: context.clock, families: plan.families },
    mode: () => modes.mode,
    map: () => proxy.map,
    hasShortTimers: () => timers.current() !== null,
    countedPackets: () => countPackets(() => proxy, logger),
  });
  const { nodeName } = context.configuration;
  const reports = createProxyEvents({ nodeName, services: sources.services, events, logger });
  stream.on('applied', ({ report, whole, seconds }) => metrics.programmed(report, whole, seconds));
  stream.on('failed', ({ whole }) => metrics.failed(whole));
  stream.on('refused', ({ refused, map }) => reports.refused(refused, map));
  stream.on('findings', ({ added }) => reports.findings(added));
  stream.on('drift', ({ drifts }) => {
    metrics.drifted(drifts);
    reports.drifted(self.node, drifts);
  });
  return metrics;
}

/** Starts the deletion of stale flows. Versions of slices count as programmed when theirs are deleted. */
export function startConntrack(
  { context, kernel, plan, logger, stream }: NodeProxy,
  {
    proxy,
    metrics,
    versions,
  }: { readonly proxy: ServiceProxy; readonly metrics: ProxyMetrics; readonly versions: SliceVersions },
): ConntrackReconciler {
  const conntrack = kernel.createConntrackReconciler({
    ...{ families: plan.families, logger, clock: context.clock },
    isListener: (at) => proxy.isListener(at),
    startsEmpty: context.startsUntracked,
    onPass: ({ family, durationMs, deleted }) => metrics.conntrackPass(family, durationMs / 1000, deleted),
  });
  context.onClose(() => conntrack.close());
  stream.on('applied', ({ whole, map, change, version }) => {
    if (whole) conntrack.sync(map);
    else conntrack.apply(change);
    void conntrack.passed().then(() => versions.programmed(version));
  });
  stream.on('drained', () => {
    if (proxy.map) conntrack.sync(proxy.map);
  });
  return conntrack;
}

/** Starts the servers of health-check node ports. Returns the proxy's health. */
export function startHealth(
  { context, proxied, sources, kernel, plan, logger, events, stream }: NodeProxy,
  proxy: ServiceProxy,
): () => ProxyHealth {
  const { clock, configuration } = context;
  const { nodeName, nodeAddress } = configuration;
  const startedAt = clock.now();
  const { nodes } = sources.followed;
  const health = () => {
    const { lastAppliedAt, pendingSince, failure } = proxy;
    return proxyHealth({
      ...{ now: clock.now(), startedAt, lastAppliedAt, pendingSince, failure, families: plan.families },
      syncPeriodMs: proxied.syncPeriodMs,
      nodeProblem: nodeProblem(nodes.get(nodeName), nodeName, nodeAddress),
    });
  };
  const checks = kernel.createHealthCheckServers({
    logger,
    isProxyHealthy: () => health().healthy,
    onFailure: createProxyEvents({ nodeName, services: sources.services, events, logger }).healthCheckFailed,
  });
  context.onClose(() => checks.close());
  stream.on('applied', ({ map }) => checks.update(map.healthChecks, map.node));
  return health;
}

export function startFlows(
  { context, sources, kernel, logger, stream }: NodeProxy,
  proxy: ServiceProxy,
): FlowWatch {
  const { policies } = sources;
  const flows = kernel.createFlowWatch({
    dataplane: () => proxy.dataplane,
    logger,
    clock: context.clock,
    monotonic: () => process.hrtime.bigint(),
    sleep: (ms) => sleep(ms),
    domain: context.configuration.clusterDomain,
    tables: () => ({
      map: proxy.map,
      policies: policies && policies.table.policyCount > 0 ? policies.table : null,
    }),
    nameFor(client, address) {
      const pod = policies?.table.usesNames ? policies.table.podAt(client) : null;
      const name = pod && policies?.learned.nameOf(pod.key, address);
      return name === '' ? null : (name ?? null);
    },
  });
  context.onClose(() => flows.close());
  stream.on('mode', () => flows.modeChanged());
  return flows;
}

export function startFailover(
  { context, sources, kernel, plan, logger, events, stream, table }: NodeProxy,
  {
    proxy,
    modes,
    metrics,
    timers,
  }: {
    readonly proxy: ServiceProxy;
    readonly modes: ModeSwitch;
    readonly metrics: ProxyMetrics;
    readonly timers: ProxyTimers;
  },
): void {
  const { services, policies } = sources;
  const map = () => proxy.map;
  const mode = () => modes.mode;
  const failover = kernel.startFailoverPart({
    nodeName: context.configuration.nodeName,
    ...{ families: plan.families, clock: context.clock, logger, table, services, events, metrics, map, mode },
    connections: createServiceConnections({ registry: context.registry, map, mode }),
    shortTimers: timers.current,
    ...(policies ? { mayBeDenied: policies.mayBeDenied } : {}),
    program: () => proxy.notify({ urgent: true }),
  });
  context.onClose(() => failover.close());
  stream.on('outcome', ({ outcome }) => failover.report(outcome));
  stream.on('applied', ({ change }) => failover.follow(change));
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
export function watchGone(
  { context, sources, logger }: NodeProxy,
  { proxy, conntrack }: { readonly proxy: ServiceProxy; readonly conntrack: ConntrackReconciler },
): void {
  const { clock } = context;
  const gone = watchGoneEndpoints({
    slices: sources.slices,
    isNodeReady: sources.followed.isReady,
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
  context.onClose(() => gone.close());
}

/** Tells the policies which addresses the proxies of other nodes have, in a mode in which they check policies. */
export function tellProxies(
  { context, sources, stream }: NodeProxy,
  policies: PolicyPart,
  modes: ModeSwitch,
): { follow(): void } {
  const { nodeName } = context.configuration;
  const allNodes = sources.followed.allNodes();
  const tell = () => {
    const others = allNodes.list().filter(({ metadata }) => metadata?.name !== nodeName);
    policies.setProxies(
      opensConnections(modes.mode) ? others.flatMap((one) => sourceAddresses(peerNode(one))).sort() : null,
    );
  };
  stream.on('mode', tell);
  if (opensConnections(modes.mode)) tell();
  return { follow: () => void allNodes.handle({ onAdd: tell, onUpdate: tell, onDelete: tell }) };
}

/** The short SYN timers of the node's sockets, which follow the mode and the Service networks. */
export interface ProxyTimers {
  /** Null: sockets have the kernel's timer. */
  current(): SynTimers['current'];
  /** Follows the mode; nothing before `startLater`. */
  follow(mode: Mode): Promise<void>;
  /** Starts to follow when the other parts of a starting node have had time. */
  startLater(mode: () => Mode): void;
}

export function createProxyTimers({ context, kernel, logger, networks }: NodeProxy): ProxyTimers {
  const { configuration, clock, onClose } = context;
  const timers = kernel.createSynTimers({ cgroupParent: configuration.pods?.cgroupParent ?? null, logger });
  onClose(() => timers.close());
  let hasStarted = false;
  const follow = async (mode: Mode) => {
    if (hasStarted) await timers.follow(mode, networks());
  };
  return {
    current: () => timers.current,
    follow,
    startLater: (mode) =>
      onClose(
        clock.after(SYN_TIMERS_AFTER_MS, () => {
          hasStarted = true;
          void follow(mode());
        }),
      ),
  };
}

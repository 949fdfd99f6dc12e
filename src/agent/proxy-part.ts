import { availableParallelism } from 'node:os';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import type { ProxyPolicies } from '../dataplane/userspace/pool-listener.ts';
import type { FlowWatch } from '../flows/flow-watch.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type ServiceProxy, startProxy } from '../proxy/proxy-loop.ts';
import type { ProxyMetrics } from '../proxy/proxy-metrics.ts';
import { feedServices } from '../proxy/service-feed.ts';
import type { ProxyHealth } from '../proxy/status-servers.ts';
import type { NodeView } from '../service/model.ts';
import type { ProxyConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import type { EgressPart } from './egress-part.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import { createModeSwitch, type ModeSwitch } from './mode-switch.ts';
import { type NodeProxy, type ProxySources, prepare } from './node-proxy.ts';
import { bpfPlace } from './other-proxies.ts';
import { withAddress } from './own-node.ts';
import type { PolicyPart } from './policy-part.ts';
import { drainProxy } from './proxy-drain.ts';
import {
  createProxyTimers,
  type ProxyTimers,
  startConntrack,
  startFailover,
  startFlows,
  startHealth,
  startMetrics,
  tellProxies,
  watchGone,
} from './proxy-followers.ts';
import { NODE_KERNEL, type ProxyKernel } from './proxy-kernel.ts';
import { opensConnections } from './proxy-plan.ts';
import { followVersions } from './slice-versions.ts';

/** The proxy of one node: loop, events, health checks, failover, connection tracking. */
export interface ProxyPart {
  readonly proxy: ServiceProxy;
  readonly metrics: ProxyMetrics;
  readonly mode: Mode;
  /** Returns the node as the forwarding table has it in a mode. */
  nodeIn(mode: Mode): NodeView;
  /** The version of the EndpointSlices that the kernel has, and by which no stale flow is left; null: none. */
  readonly programmedSlices: string | null;
  /** The flows that `fairlead flows` shows. */
  readonly flows: FlowWatch;
  health(): ProxyHealth;
  /** Switches the proxy mode; the previous one is removed when the new one is complete. */
  switchMode(mode: Mode): Promise<void>;
  /** See Agent. */
  drain(): Promise<void>;
}

/** Starts the proxy. Resolves when the objects are known; `proxy.programmed` resolves when the kernel has them. */
export async function startProxyPart(
  context: AgentContext,
  proxied: ProxyConfiguration,
  sources: ProxySources,
  kernel: ProxyKernel = NODE_KERNEL,
): Promise<ProxyPart> {
  const { services, slices, serviceCidrs, followed, policies } = sources;
  const logger = context.logger.child({ part: 'proxy' });
  const place = bpfPlace(context.configuration.pods?.cgroupParent ?? null);
  const { evidence, others } = await kernel.findOtherProxies(context, proxied, place, logger);
  const shared = prepare(context, proxied, sources, kernel, evidence !== null);
  const { plan, stream, table, events, self } = shared;
  kernel.applyConntrackSettings(proxied.conntrack, availableParallelism(), logger);
  if (plan.adopts.ofKubeProxy) await kernel.adoptServers(proxied.ipvsExcludedCidrs, logger);
  if (plan.adopts.ofOthers) await kernel.adoptOtherServers(others);

  const dataplanes = createDataplanes(shared);
  const versions = followVersions(slices);
  context.onClose(versions.close);
  const proxy = startProxy({
    ...{ table, stream, logger, clock: context.clock },
    dataplane: await dataplanes.open(plan.mode),
    minSyncPeriodMs: proxied.minSyncPeriodMs,
    syncPeriodMs: proxied.syncPeriodMs,
    version: versions.latest,
  });
  dataplanes.onForeignChange(proxy.check);
  const timers = createProxyTimers(shared);
  const modes = startModes(shared, { proxy, dataplanes, timers });
  const metrics = startMetrics(shared, { proxy, modes, timers });
  const conntrack = startConntrack(shared, { proxy, metrics, versions });
  const health = startHealth(shared, proxy);
  // Closes are in the reverse order: the proxy's last events reach open parts.
  context.onClose(() => proxy.close());
  const flows = startFlows(shared, proxy);
  startFailover(shared, { proxy, modes, metrics, timers });
  await Promise.all([services.synced, slices.synced]);
  watchGone(shared, { proxy, conntrack });
  const proxies = policies ? tellProxies(shared, policies, modes) : null;
  // Before that, the proxy would let connections pass that policies deny.
  if (plan.waitsForPolicies) await policies?.ready;
  // All existing objects must be in the table before the first programming: missing ones would look deleted.
  feedServices({ table, services, slices, metrics, notify: () => proxy.notify() });
  proxy.notify();
  const updateView = () => {
    table.setNode(shared.viewIn(modes.mode).view);
    proxy.notify();
    void timers.follow(modes.mode);
  };
  serviceCidrs.handle({ onAdd: updateView, onUpdate: updateView, onDelete: updateView });
  followOwnNode(context, followed.nodes, logger, {
    apply(changed) {
      self.node = changed;
      updateView();
    },
    applied: modes.follow,
  });
  proxies?.follow();
  void proxy.programmed.then(() => timers.startLater(() => modes.mode));
  void proxy.programmed.then(async () => {
    await modes.removeEarlier((earlier) => dataplanes.open(earlier, null));
    await kernel.takeOverNode(context, proxied, logger, {
      ...{ place, families: plan.families, mode: () => modes.mode, isKubeProxyLeft: plan.removesKubeProxy },
      report: (reason, message) => events.event(self.node, 'Normal', reason, message, RESOURCES.nodes),
    });
  });
  return {
    ...{ proxy, metrics, flows, health, switchMode: modes.switchMode },
    get mode() {
      return modes.mode;
    },
    nodeIn: (mode) => shared.viewIn(mode).view,
    get programmedSlices() {
      return versions.latestProgrammed();
    },
    drain: () =>
      drainProxy({
        ...{ modes, proxy, logger, clock: context.clock, relays: dataplanes.relays },
        isProxy: opensConnections(modes.mode),
      }),
  };
}

/** The dataplanes that this proxy has opened. */
interface Dataplanes {
  /** `ipvsScheduler` null: the mode is opened only to be removed. */
  open(mode: Mode, ipvsScheduler?: string | null): Promise<Dataplane>;
  /** Modes whose connections this process copies. */
  readonly relays: ReadonlySet<Dataplane>;
  /** Calls the listener when another program has changed a mode's state. */
  onForeignChange(listener: () => void): void;
}

function createDataplanes({
  context,
  proxied,
  sources,
  kernel,
  plan,
  logger,
  stream,
}: NodeProxy): Dataplanes {
  const { policies, egress } = sources;
  const relays = new Set<Dataplane>();
  let changed: () => void = () => undefined;
  return {
    relays,
    onForeignChange(listener) {
      changed = listener;
    },
    async open(mode, ipvsScheduler = proxied.ipvsScheduler) {
      const dataplane = await kernel.openDataplane(mode, {
        ...{ families: plan.families, logger, ipvsScheduler },
        onForeignChange: () => changed(),
        onOutcome: (outcome) => stream.emit({ kind: 'outcome', outcome }),
        ...(policies || egress ? { policies: withoutOutside(policies, egress) } : {}),
        cgroupParent: context.configuration.pods?.cgroupParent ?? null,
        ipvsTimeouts: proxied.ipvsTimeouts,
      });
      if (dataplane.abilities.connections?.drain) relays.add(dataplane);
      return dataplane;
    },
  };
}

function startModes(
  { context, plan, logger, events, stream, table, self, viewIn }: NodeProxy,
  {
    proxy,
    dataplanes,
    timers,
  }: { readonly proxy: ServiceProxy; readonly dataplanes: Dataplanes; readonly timers: ProxyTimers },
): ModeSwitch {
  return createModeSwitch({
    stateDir: context.configuration.stateDir,
    mode: plan.mode,
    open: dataplanes.open,
    async switchTo(next) {
      await proxy.switchTo(next);
      stream.emit({ kind: 'mode', mode: next.mode });
      await timers.follow(next.mode);
    },
    onKept: () => proxy.notify(),
    onMode: (mode) => table.setNode(viewIn(mode).view),
    node: () => self.node,
    ...{ events, logger, clock: context.clock, signal: context.signal },
  });
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

/**
 * Returns the policies of a mode that opens connections itself: with the node's address. It opens none of a pod to a host
 * outside that an egress gateway includes.
 */
function withoutOutside(policies: PolicyPart | null, egress: EgressPart | null): ProxyPolicies {
  return {
    admits: (client, endpoint, protocol) =>
      (egress?.mayProxy(client, endpoint.ip) ?? true) &&
      (policies?.admits(client, endpoint, protocol) ?? true),
    denied: (client, endpoint, protocol) => {
      if (egress?.mayProxy(client, endpoint.ip) ?? true) policies?.denied(client, endpoint, protocol);
      else egress?.reportRefused(client, endpoint.ip);
    },
  };
}

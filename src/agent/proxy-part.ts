import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { type ConntrackReconciler, createConntrackReconciler } from '../dataplane/conntrack/reconciler.ts';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import { dial } from '../failover/dial.ts';
import { EJECTION_RULES } from '../failover/ejection-rules.ts';
import { createEventRecorder, type EventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import {
  type EndpointSlice,
  type KubeObject,
  type Node,
  RESOURCES,
  type Service,
  type ServiceCidr,
} from '../kube/types.ts';

import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { applyConntrackSettings } from '../proxy/conntrack-settings.ts';
import { startFailoverPart } from '../proxy/failover-part.ts';
import { createFlowWatch, type FlowWatch } from '../proxy/flow-watch.ts';
import { type GoneEndpoint, watchGoneEndpoints } from '../proxy/gone-endpoints.ts';
import { createHealthCheckServers } from '../proxy/health-check-servers.ts';
import { type Applied, type ServiceProxy, startProxy } from '../proxy/proxy-loop.ts';
import { createProxyMetrics, type ProxyMetrics } from '../proxy/proxy-metrics.ts';
import type { ProxyHealth } from '../proxy/status-servers.ts';
import type { Finding } from '../service/model.ts';
import { type NodeSettings, readNodeView } from '../service/node-view.ts';
import { createServiceTable, type ServiceTable } from '../service/service-table.ts';
import type { AgentContext } from './agent-context.ts';
import { MODES, type ProxyConfiguration } from './configuration.ts';
import { availableModes, openDataplane } from './dataplanes.ts';
import { familiesOf, nodeProblem, withAddress } from './own-node.ts';
import type { PolicyPart } from './policy-part.ts';
import { serviceNetworks } from './service-networks.ts';

/** The proxy of one node at work, with what stands around it: findings as events, health checks, connection tracking. */
export interface ProxyPart {
  readonly proxy: ServiceProxy;
  readonly metrics: ProxyMetrics;
  readonly mode: Mode;
  /** What happens to flows through Services. */
  readonly flows: FlowWatch;
  health(): ProxyHealth;
  /** Carries Services by another mode from now on; the one before is removed when the new one is complete. */
  switchMode(mode: Mode): Promise<void>;
}

/** Annotation of a Node: the mode in which its agent carries Services. */
export const MODE_ANNOTATION = 'fairlead.dev/mode';
const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';
/** Remembers which mode wrote to the kernel, so that the next run can remove what another left. */
export const MODE_FILE = 'proxy-mode';
/** Services with these labels belong to another proxy, or to none (KEP-2447). */
const NOT_OURS = ['service.kubernetes.io/service-proxy-name', 'service.kubernetes.io/headless'];

export interface ProxySources {
  readonly node: Node;
  readonly nodes: Informer<Node>;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** Networks of cluster IPs (KEP-1880); without any, the configuration's are used. */
  readonly serviceCidrs: Informer<ServiceCidr>;
  readonly policies: PolicyPart | null;
}

/** Carries this node's Services. Resolves when the objects are known; `proxy.programmed` says when the kernel has them. */
export async function startProxyPart(
  context: AgentContext,
  proxied: ProxyConfiguration,
  sources: ProxySources,
): Promise<ProxyPart> {
  const { configuration, clock, registry } = context;
  const { node, nodes, services, slices, serviceCidrs, policies } = sources;
  const logger = context.logger.child({ part: 'proxy' });
  const events = createEventRecorder({
    ...context,
    component: 'fairlead-proxy',
    host: configuration.nodeName,
  });
  const families = familiesOf(node);
  const startedAt = clock.now();
  let mode = modeOf(node) ?? proxied.mode;
  let self = node;
  const readView = () => {
    const settings: NodeSettings = {
      ...proxied,
      serviceCidrs: serviceNetworks(serviceCidrs.list()) ?? proxied.serviceCidrs,
      defaultNodePortAddresses: modeDiffers(mode, 'node-ports-on-primary-addresses') ? 'primary' : 'all',
      ownServiceAddresses: configuration.dns?.addresses ?? [],
      families,
    };
    return readNodeView(self, settings);
  };
  const { view, warnings } = readView();
  for (const warning of warnings) logger.warn({}, warning);
  const table = createServiceTable(view);
  const metrics = createProxyMetrics({ registry, clock, families, mode: () => mode, map: () => proxy.map });
  /** `ipvsScheduler` null: a mode that is only to be removed. */
  const open = (wanted: Mode, ipvsScheduler: string | null = proxied.ipvsScheduler) =>
    openDataplane(wanted, {
      families,
      logger,
      onForeignChange: () => proxy.check(),
      onOutcome: (outcome) => failover.report(outcome),
      ...(policies ? { admits: policies.admits } : {}),
      cgroupParent: configuration.pods?.cgroupParent ?? null,
      ipvsScheduler,
      ipvsTimeouts: proxied.ipvsTimeouts,
    });
  applyConntrackSettings(proxied.conntrack, availableParallelism(), logger);
  const conntrack = createConntrackReconciler({
    families,
    logger,
    clock,
    listening: (at) => proxy.listening(at),
    onPass: ({ family, durationMs, deleted }) => metrics.conntrackPass(family, durationMs / 1000, deleted),
  });
  context.onClose(() => conntrack.close());
  const health = (): ProxyHealth => {
    const since = proxy.pendingSince;
    const problem = nodeProblem(
      nodes.get(configuration.nodeName),
      configuration.nodeName,
      configuration.nodeAddress,
    );
    const isProgrammed = since === null || clock.now() - since < 2 * proxied.syncPeriodMs;
    return {
      healthy: isProgrammed && problem === null,
      lastUpdated: proxy.lastAppliedAt ?? startedAt,
      families,
      problem,
    };
  };
  const checks = createHealthCheckServers({
    logger,
    isProxyHealthy: () => health().healthy,
    onFailure({ namespace, name, port }, error) {
      const service = services.get(`${namespace}/${name}`);
      if (!service) return;
      const message = `node ${configuration.nodeName} cannot serve healthCheckNodePort ${port}: ${messageOf(error)}`;
      events.event(service, 'Warning', 'FailedToStartServiceHealthcheck', message, RESOURCES.services);
    },
  });
  context.onClose(() => checks.close());

  const dataplane = await open(mode);
  const proxy = startProxy({
    table,
    dataplane,
    clock,
    logger,
    minSyncPeriodMs: proxied.minSyncPeriodMs,
    syncPeriodMs: proxied.syncPeriodMs,
    onApplied(applied) {
      metrics.programmed(applied.report, applied.whole, applied.seconds);
      follow(conntrack, applied);
      checks.update(applied.map.healthChecks, applied.map.node);
    },
    onDrained() {
      if (proxy.map) conntrack.sync(proxy.map);
    },
    onFailed: (whole) => metrics.failed(whole),
    onRefused(refused, map) {
      for (const { key, error } of refused) {
        const owner = map.frontends.get(key)?.owner;
        const service = owner && services.get(`${owner.namespace}/${owner.name}`);
        if (!service) continue;
        const hint = error instanceof FairleadError && error.hint ? ` (${error.hint})` : '';
        const message = `node ${configuration.nodeName} cannot carry ${key} as it is written: ${error.message}${hint}`;
        events.event(service, 'Warning', 'NotProgrammed', message, RESOURCES.services);
      }
    },
    onFindings: (findings) => report(findings, services, events, logger),
    onDrift(drifts) {
      metrics.drifted(drifts);
      const [first] = drifts;
      const message = `${drifts.length} differences in the kernel's rules are repaired; the first: ${first?.object} is ${first?.kind}`;
      events.event(self, 'Warning', 'ServiceRulesChanged', message, RESOURCES.nodes);
    },
  });
  context.onClose(() => proxy.close());
  const flows = createFlowWatch({
    dataplane: () => proxy.dataplane,
    logger,
    monotonic: () => process.hrtime.bigint(),
  });
  context.onClose(() => flows.close());
  const failover = startFailoverPart({
    nodeName: configuration.nodeName,
    families,
    clock,
    logger,
    table,
    services,
    events,
    metrics,
    mode: () => mode,
    map: () => proxy.map,
    program: () => proxy.notify({ urgent: true }),
  });
  context.onClose(() => failover.close());
  await Promise.all([services.synced, slices.synced]);
  const gone = watchGoneEndpoints({
    slices,
    nodes,
    clock,
    logger,
    dial: (endpoint) => dial(endpoint, EJECTION_RULES.agentUnansweredMs, clock),
    // The connections of a mode that has its own are not listed: any may be there.
    connected: (endpoints) => (ownConnections(proxy.dataplane) ? endpoints : conntrack.connected(endpoints)),
    async end(endpoints) {
      await ownConnections(proxy.dataplane)?.(endpoints);
      await conntrack.endConnections(endpoints);
    },
  });
  context.onClose(() => gone.close());
  // Nothing is programmed from half of the objects: what is missing would look deleted. All are in the table after this.
  feed(table, services, slices, metrics, () => proxy.notify());
  proxy.notify();

  if (policies && isProxy(mode)) {
    policies.setProxied(true);
    // Before that, nothing could be refused.
    await policies.ready;
  }
  const switchMode = async (wanted: Mode) => {
    if (wanted === mode) return;
    const before = mode;
    const next = await open(wanted);
    mode = wanted;
    table.setNode(readView().view);
    try {
      await proxy.switchTo(next);
      flows.modeChanged();
      policies?.setProxied(isProxy(mode));
    } catch (error) {
      mode = before;
      table.setNode(readView().view);
      await next.remove().finally(() => next.close());
      proxy.notify();
      throw error;
    }
    writeFileSync(join(configuration.stateDir, MODE_FILE), mode);
    logger.info({ from: before, to: mode }, 'mode switched');
    events.event(self, 'Normal', 'ModeSwitched', `Services are carried by ${mode} now`, RESOURCES.nodes);
  };
  const followNetworks = () => {
    table.setNode(readView().view);
    proxy.notify();
  };
  serviceCidrs.handle({ onAdd: followNetworks, onUpdate: followNetworks, onDelete: followNetworks });
  // One switch at a time; a newer wish waits for the one under way.
  let switching: Promise<void> = Promise.resolve();
  const followNode = (changed: Node) => {
    if (changed.metadata?.name !== configuration.nodeName) return;
    self = withAddress(changed, configuration.nodeAddress);
    try {
      table.setNode(readView().view);
      proxy.notify();
    } catch (error) {
      logger.error({ err: error }, `the node's view stays as it was: ${messageOf(error)}`);
    }
    const wanted = changed.metadata.annotations?.[MODE_ANNOTATION];
    if (wanted === undefined || wanted === mode) return;
    switching = switching.then(async () => {
      try {
        await switchMode(checkMode(wanted));
      } catch (error) {
        logger.error({ err: error, wanted }, `mode stays ${mode}: ${messageOf(error)}`);
        events.event(self, 'Warning', 'ModeNotSwitched', messageOf(error), RESOURCES.nodes);
      }
    });
  };
  nodes.handle({ onAdd: followNode, onUpdate: followNode });
  void proxy.programmed.then(async () => {
    try {
      await removeEarlierMode(configuration.stateDir, mode, (earlier) => open(earlier, null));
    } catch (error) {
      logger.error({ err: error }, `an earlier mode's rules are still there: ${messageOf(error)}`);
    }
  });
  return {
    proxy,
    metrics,
    get mode() {
      return mode;
    },
    flows,
    health,
    switchMode: (wanted) => {
      const done = switching.then(() => switchMode(wanted));
      switching = done.catch(() => {});
      return done;
    },
  };
}

/** How a mode ends the connections that it keeps itself, besides connection tracking; null: it keeps none. */
function ownConnections(
  dataplane: Dataplane,
): ((endpoints: readonly GoneEndpoint[]) => Promise<unknown> | unknown) | null {
  if (!('endConnections' in dataplane) || typeof dataplane.endConnections !== 'function') return null;
  return dataplane.endConnections.bind(dataplane);
}

/** Keeps the table equal to the objects. */
function feed(
  table: ServiceTable,
  services: Informer<Service>,
  slices: Informer<EndpointSlice>,
  metrics: ProxyMetrics,
  notify: () => void,
): void {
  const setService = (service: Service) => {
    if (isOurs(service)) table.setService(service);
    else table.deleteService(service.metadata?.namespace ?? '', service.metadata?.name ?? '');
    metrics.serviceChanged();
    notify();
  };
  services.handle({
    onAdd: setService,
    onUpdate: setService,
    onDelete({ metadata }) {
      table.deleteService(metadata?.namespace ?? '', metadata?.name ?? '');
      metrics.serviceChanged();
      notify();
    },
  });
  let synced = false;
  const setSlice = (slice: EndpointSlice) => {
    table.setSlice(slice);
    // What happened before this agent looked says nothing about how fast it is.
    metrics.endpointsChanged(synced ? triggerTime(slice) : null);
    notify();
  };
  slices.handle({
    onAdd: setSlice,
    onUpdate: setSlice,
    onDelete({ metadata }) {
      table.deleteSlice(metadata?.namespace ?? '', metadata?.name ?? '');
      metrics.endpointsChanged(null);
      notify();
    },
  });
  synced = true;
}

function triggerTime(slice: EndpointSlice): number | null {
  const text = (slice.metadata?.annotations as Record<string, string> | undefined)?.[TRIGGER_TIME];
  const at = text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(at) ? null : at;
}

function follow(conntrack: ConntrackReconciler, { change, map, whole }: Applied): void {
  if (whole) conntrack.sync(map);
  else conntrack.apply(change);
}

/** Says in the log and as events on the Services what could not be used as it is written. */
function report(
  findings: readonly Finding[],
  services: Informer<Service>,
  events: EventRecorder,
  logger: AgentContext['logger'],
): void {
  for (const { object, severity, reason, message } of findings) {
    logger.warn({ object: `${object.kind} ${object.namespace}/${object.name}`, reason }, message);
    const subject: KubeObject | undefined =
      object.kind === 'Service' ? services.get(`${object.namespace}/${object.name}`) : undefined;
    const type = severity === 'error' ? 'Warning' : 'Normal';
    if (subject) events.event(subject, type, reason, message, RESOURCES.services);
  }
}

function isOurs(service: Service): boolean {
  const labels = (service.metadata?.labels ?? {}) as Record<string, string>;
  return !NOT_OURS.some((label) => label in labels);
}

/** Whether this node's proxy takes packets to Services and opens connections to endpoints itself. */
const isProxy = (mode: Mode): boolean => mode === 'userspace';

/** The mode that a node's annotation asks for; null: none, or none that there is. */
function modeOf(node: Node): Mode | null {
  const wanted = (node.metadata?.annotations as Record<string, string> | undefined)?.[MODE_ANNOTATION];
  return availableModes().find((mode) => mode === wanted) ?? null;
}

function checkMode(text: string): Mode {
  const mode = MODES.find((one) => one === text);
  if (mode) return mode;
  throw new FairleadError(`annotation ${MODE_ANNOTATION}: ${JSON.stringify(text)} is not a mode`, {
    op: 'switch mode',
    code: 'no-such-mode',
    hint: `use one of ${availableModes().join(', ')}`,
  });
}

/** Removes what another mode wrote when the node ran in it last. */
async function removeEarlierMode(
  stateDir: string,
  mode: Mode,
  open: (mode: Mode) => ReturnType<typeof openDataplane>,
): Promise<void> {
  const file = join(stateDir, MODE_FILE);
  const earlier = availableModes().find((one) => one === readOptional(file));
  if (earlier !== undefined && earlier !== mode) {
    const dataplane = await open(earlier);
    try {
      await dataplane.remove({ succeeded: true });
    } finally {
      await dataplane.close();
    }
  }
  writeFileSync(file, mode);
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

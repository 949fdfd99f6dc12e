import { createConntrackReconciler } from '../dataplane/conntrack/reconciler.ts';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { createFlowWatch } from '../flows/flow-watch.ts';
import { applyConntrackSettings } from '../proxy/conntrack-settings.ts';
import { startFailoverPart } from '../proxy/failover-part.ts';
import { createHealthCheckServers } from '../proxy/health-check-servers.ts';
import { type DataplaneSettings, openDataplane } from './dataplanes.ts';
import { adoptServers } from './kube-proxy-state.ts';
import { adoptOtherServers } from './other-proxies.ts';
import { findOtherProxies, takeOverNode } from './proxy-take-over.ts';
import { createSynTimers } from './syn-timers.ts';

/** The functions of a node's kernel that its proxy uses. Tests of the wiring replace them. */
export interface ProxyKernel {
  openDataplane(mode: Mode, settings: DataplaneSettings): Promise<Dataplane>;
  readonly findOtherProxies: typeof findOtherProxies;
  readonly takeOverNode: typeof takeOverNode;
  readonly adoptServers: typeof adoptServers;
  readonly adoptOtherServers: typeof adoptOtherServers;
  readonly applyConntrackSettings: typeof applyConntrackSettings;
  readonly createConntrackReconciler: typeof createConntrackReconciler;
  readonly createHealthCheckServers: typeof createHealthCheckServers;
  readonly createSynTimers: typeof createSynTimers;
  readonly createFlowWatch: typeof createFlowWatch;
  readonly startFailoverPart: typeof startFailoverPart;
}

export const NODE_KERNEL: ProxyKernel = {
  openDataplane,
  findOtherProxies,
  takeOverNode,
  adoptServers,
  adoptOtherServers,
  applyConntrackSettings,
  createConntrackReconciler,
  createHealthCheckServers,
  createSynTimers,
  createFlowWatch,
  startFailoverPart,
};

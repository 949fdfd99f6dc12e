import type { Mode } from '../dataplane/dataplane.ts';
import { createEventRecorder, type EventRecorder } from '../kube/events.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Node, Service, ServiceCidr } from '../kube/types.ts';
import type { Cidr } from '../lib/address.ts';
import type { Logger } from '../lib/log.ts';
import { createProxyStream, type ProxyStream } from '../proxy/proxy-stream.ts';
import { createServiceTable, type ServiceTable } from '../service/service-table.ts';
import type { ProxyConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import type { EgressPart } from './egress-part.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import type { PolicyPart } from './policy-part.ts';
import type { ProxyKernel } from './proxy-kernel.ts';
import { nodeViewIn, type ProxyPlan, planProxy } from './proxy-plan.ts';
import { serviceNetworks } from './service-networks.ts';

export interface ProxySources {
  readonly node: Node;
  readonly followed: FollowedNodes;
  readonly services: Informer<Service>;
  readonly slices: Informer<EndpointSlice>;
  /** Networks of cluster IPs (KEP-1880); without any, those of the configuration are used. */
  readonly serviceCidrs: Informer<ServiceCidr>;
  readonly policies: PolicyPart | null;
  readonly egress: EgressPart | null;
}

/** The state that the parts of a node's proxy share. Each part follows the stream, and knows only parts that are started before it. */
export interface NodeProxy {
  readonly context: AgentContext;
  readonly proxied: ProxyConfiguration;
  readonly sources: ProxySources;
  readonly kernel: ProxyKernel;
  readonly plan: ProxyPlan;
  readonly logger: Logger;
  readonly events: EventRecorder;
  readonly stream: ProxyStream;
  readonly table: ServiceTable;
  /** The node's object as it was last applied. */
  readonly self: { node: Node };
  networks(): readonly Cidr[];
  viewIn(mode: Mode): ReturnType<typeof nodeViewIn>;
}

/** Plans the proxy, and reads the node. */
export function prepare(
  context: AgentContext,
  proxied: ProxyConfiguration,
  sources: ProxySources,
  kernel: ProxyKernel,
  isKubeProxyRunning: boolean,
): NodeProxy {
  const { configuration } = context;
  const { node, serviceCidrs, policies } = sources;
  const logger = context.logger.child({ part: 'proxy' });
  const plan = planProxy(proxied, { node, hasPolicies: policies !== null, isKubeProxyRunning });
  const self = { node };
  const networks = () => serviceNetworks(serviceCidrs.list()) ?? proxied.serviceCidrs;
  const viewIn = (mode: Mode) =>
    nodeViewIn(mode, configuration, proxied, {
      ...{ node: self.node, families: plan.families, serviceCidrs: networks() },
    });
  const { view, warnings } = viewIn(plan.mode);
  for (const warning of warnings) logger.warn({}, warning);
  return {
    ...{ context, proxied, sources, kernel, plan, logger, self, networks, viewIn },
    events: createEventRecorder({
      ...context,
      component: 'fairlead-proxy',
      host: configuration.nodeName,
    }),
    stream: createProxyStream(),
    table: createServiceTable(view),
  };
}

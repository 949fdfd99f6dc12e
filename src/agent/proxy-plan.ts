import type { Mode } from '../dataplane/dataplane.ts';
import { modeDiffers } from '../dataplane/mode-differences.ts';
import type { Node } from '../kube/types.ts';
import type { Cidr, IPFamily } from '../lib/address.ts';
import { type NodeSettings, readNodeView } from '../service/node-view.ts';
import type { AgentConfiguration, ProxyConfiguration } from './agent-configuration.ts';
import { modeOf } from './mode-switch.ts';
import { familiesOf } from './own-node.ts';

/** The start of a node's proxy, by its configuration and the state that was found on the node. */
export interface ProxyPlan {
  readonly mode: Mode;
  readonly families: readonly IPFamily[];
  /** IPVS servers of earlier programs, which this proxy adopts before it opens the mode. */
  readonly adopts: { readonly ofKubeProxy: boolean; readonly ofOthers: boolean };
  /** The first programming waits for the policies, which the mode checks itself. */
  readonly waitsForPolicies: boolean;
  /** The rules of kube-proxy are removed after the first programming. */
  readonly removesKubeProxy: boolean;
}

export interface ProxyFacts {
  readonly node: Node;
  readonly hasPolicies: boolean;
  /** kube-proxy runs on this node, beside this proxy. */
  readonly isKubeProxyRunning: boolean;
}

export function planProxy(
  { mode: configured }: Pick<ProxyConfiguration, 'mode'>,
  facts: ProxyFacts,
): ProxyPlan {
  const { node, hasPolicies, isKubeProxyRunning } = facts;
  const mode = modeOf(node) ?? configured;
  return {
    mode,
    families: familiesOf(node),
    adopts: { ofKubeProxy: mode === 'ipvs' && !isKubeProxyRunning, ofOthers: mode === 'ipvs' },
    waitsForPolicies: hasPolicies && opensConnections(mode),
    removesKubeProxy: !isKubeProxyRunning,
  };
}

/**
 * Returns true if the proxy on this node accepts connections to Services and opens connections to endpoints
 * itself.
 */
export const opensConnections = (mode: Mode): boolean => modeDiffers(mode, 'server-sees-node');

/** Reads the node as the forwarding table has it in a mode. */
export function nodeViewIn(
  mode: Mode,
  { dns }: Pick<AgentConfiguration, 'dns'>,
  proxied: ProxyConfiguration,
  {
    node,
    families,
    serviceCidrs,
  }: {
    readonly node: Node;
    readonly families: NodeSettings['families'];
    readonly serviceCidrs: readonly Cidr[];
  },
): ReturnType<typeof readNodeView> {
  return readNodeView(node, {
    ...proxied,
    serviceCidrs,
    detectLocalMode: localDetectionIn(mode, proxied, node),
    defaultNodePortAddresses: modeDiffers(mode, 'node-ports-on-primary-addresses') ? 'primary' : 'all',
    ownServiceAddresses: dns?.addresses ?? [],
    families,
  });
}

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

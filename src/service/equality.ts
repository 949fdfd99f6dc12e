import type { Cidr } from '../lib/address.ts';
import { sameEndpoint } from './endpoint-selection.ts';
import type { Endpoint, Frontend, HealthCheck, NodeView, Pool, Route } from './model.ts';

const NONE: readonly Endpoint[] = [];

export function samePool(a: Pool, b: Pool): boolean {
  return (
    a === b ||
    (a.id === b.id &&
      sameList(a.endpoints, b.endpoints, sameEndpoint) &&
      sameList(a.ejected ?? NONE, b.ejected ?? NONE, sameEndpoint) &&
      sameList(a.spared ?? NONE, b.spared ?? NONE, sameEndpoint))
  );
}

export function sameFrontend(a: Frontend, b: Frontend): boolean {
  return (
    a === b ||
    (a.key === b.key &&
      a.kind === b.kind &&
      a.owner.namespace === b.owner.namespace &&
      a.owner.name === b.owner.name &&
      a.owner.portName === b.owner.portName &&
      a.affinitySeconds === b.affinitySeconds &&
      sameRoutes(a.routes, b.routes) &&
      sameCidrs(a.allowedSources, b.allowedSources) &&
      a.options.ipvsScheduler === b.options.ipvsScheduler &&
      a.options.balance === b.options.balance &&
      a.options.failover === b.options.failover)
  );
}

function sameRoutes(a: Frontend['routes'], b: Frontend['routes']): boolean {
  return (
    a === b || (sameRoute(a.pod, b.pod) && sameRoute(a.node, b.node) && sameRoute(a.external, b.external))
  );
}

export function sameHealthCheck(a: HealthCheck, b: HealthCheck): boolean {
  return (
    a.namespace === b.namespace &&
    a.name === b.name &&
    a.port === b.port &&
    a.localEndpoints === b.localEndpoints
  );
}

/** Returns true if two views are equal in every field. */
export function sameNodeView(a: NodeView, b: NodeView): boolean {
  return (
    a === b ||
    (sameForRoutes(a, b) &&
      a.masqueradeBit === b.masqueradeBit &&
      a.ipvsScheduler === b.ipvsScheduler &&
      a.localhostNodePorts === b.localhostNodePorts &&
      sameCidrs(a.serviceCidrs, b.serviceCidrs) &&
      sameNodePorts(a, b, 'ipv4') &&
      sameNodePorts(a, b, 'ipv6'))
  );
}

/** Returns true if the difference between the two views affects no frontend. */
export function sameForRoutes(a: NodeView, b: NodeView): boolean {
  return (
    a.name === b.name &&
    a.zone === b.zone &&
    a.ipv4 === b.ipv4 &&
    a.ipv6 === b.ipv6 &&
    a.masqueradeAll === b.masqueradeAll &&
    sameList(a.ownServiceAddresses, b.ownServiceAddresses, Object.is) &&
    detectionText(a) === detectionText(b)
  );
}

function detectionText(node: NodeView): string {
  const detection = node.localDetection;
  switch (detection.mode) {
    case 'ClusterCIDR':
    case 'NodeCIDR':
      return `${detection.mode} ${detection.ipv4?.text} ${detection.ipv6?.text}`;
    case 'BridgeInterface':
      return `${detection.mode} ${detection.interface}`;
    case 'InterfaceNamePrefix':
      return `${detection.mode} ${detection.prefix}`;
  }
}

function sameNodePorts(a: NodeView, b: NodeView, family: 'ipv4' | 'ipv6'): boolean {
  const left = a.nodePortAddresses[family];
  const right = b.nodePortAddresses[family];
  if (left.all || right.all) return left.all === right.all;
  return sameCidrs(left.cidrs, right.cidrs);
}

function sameRoute(a: Route, b: Route): boolean {
  if (a === b) return true;
  if (a.action === 'forward' || b.action === 'forward') {
    if (a.action !== 'forward' || b.action !== 'forward') return false;
    return a.masquerade === b.masquerade && samePool(a.pool, b.pool);
  }
  return a.action === b.action && a.reason === b.reason;
}

function sameCidrs(a: readonly Cidr[] | null, b: readonly Cidr[] | null): boolean {
  if (a === null || b === null) return a === b;
  return sameList(a, b, (left, right) => left.text === right.text);
}

function sameList<T>(a: readonly T[], b: readonly T[], same: (left: T, right: T) => boolean): boolean {
  return a === b || (a.length === b.length && a.every((item, i) => same(item, b[i] as T)));
}

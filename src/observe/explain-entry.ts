import { addressLeaseMetadata, allocatedAddresses } from '../kube/load-balancer.ts';
import { familyOf } from '../lib/address.ts';
import { isLoopback } from './explain-arrival.ts';
import { serviceAt } from './explain-causes.ts';
import { hostAt, nameOf, nodeAt, readyNodes } from './explain-places.ts';
import type { ExplainView, Origin } from './explain-view.ts';
import type { Cause, ExplainStep, ExplainVerdict } from './explanation.ts';
import type { Place } from './fact-requests.ts';

/** The first hop of a packet. */
export type Entered =
  /** It enters the Service rules of a node. */
  | { readonly kind: 'node'; readonly node: string; readonly steps: readonly ExplainStep[] }
  /** It stays in its network namespace, or goes to a neighbour that is not a node: no table applies. */
  | {
      readonly kind: 'itself';
      readonly place: Place;
      readonly label: string;
      readonly steps: readonly ExplainStep[];
    }
  | {
      readonly kind: 'stopped';
      readonly verdict: ExplainVerdict;
      readonly reason: string;
      readonly steps: readonly ExplainStep[];
      readonly causes: readonly Cause[];
    };

/** Follows a packet from its origin to the node whose Service rules it enters. */
export function enter(view: ExplainView, origin: Origin, address: string): Entered {
  const { place, label } = origin;
  const isOwn = isLoopback(address) || origin.addresses.includes(address);
  if (place && origin.kind !== 'node' && isOwn) return { kind: 'itself', place, label, steps: [] };
  if (origin.kind === 'node' && origin.node !== null) return { kind: 'node', node: origin.node, steps: [] };
  if (!place) return enterFromUnknown(view, address);
  const route = view.facts.route(place, address);
  if (route === undefined) return stopped('unknown', `the route of ${label} to ${address} is not known`, []);
  if (route === null) {
    const cause = noRouteCause(view, origin, address);
    return stopped('unreachable', cause.text, [cause]);
  }
  if (origin.node !== null) return { kind: 'node', node: origin.node, steps: [] };
  if (route.via === null) {
    const causes = noAnnouncerCauses(view, address);
    if (causes.length > 0) return stopped('unreachable', `no node announces ${address} on the link`, causes);
  }
  const next = route.via ?? address;
  const step = entryStep(view, address);
  const node = nodeAt(view, next)?.metadata?.name ?? (route.via === null ? view.entryNode?.(address) : null);
  if (node) return { kind: 'node', node, steps: step === null ? [] : [step] };
  const host = hostAt(view, next);
  if (host !== null && route.via === null)
    return { kind: 'itself', place: { kind: 'host', name: host }, label: host, steps: [] };
  if (route.via !== null)
    return stopped('unknown', `${address} is routed to ${route.via}, which is not part of this cluster`, []);
  const cause = unannouncedCause(view, address);
  return stopped('unreachable', cause.text, [cause]);
}

function stopped(verdict: ExplainVerdict, reason: string, causes: readonly Cause[]): Entered {
  return { kind: 'stopped', verdict, reason, steps: [], causes };
}

/** Lets packets of an unknown host enter through the node of the destination, or the node that announces it. */
function enterFromUnknown(view: ExplainView, address: string): Entered {
  const causes = noAnnouncerCauses(view, address);
  if (causes.length > 0) return stopped('unreachable', `no node announces ${address} on the link`, causes);
  const owner = nodeAt(view, address);
  const announcer = view.entryNode?.(address) ?? null;
  const certain = owner ? nameOf(owner) : announcer;
  const local = certain === null ? localNode(view, address) : null;
  const any = [...view.nodes()].map(nameOf);
  const node =
    certain ?? view.podAt(address)?.spec?.nodeName ?? local ?? any.find((name) => view.map(name)) ?? any[0];
  if (node === undefined)
    return stopped('unknown', 'the node that the packet enters through is not known', []);
  const step = entryStep(view, address) ?? (certain === null ? routedStep(view, address, node, local) : null);
  return { kind: 'node', node, steps: step === null ? [] : [step] };
}

/** Returns a node with a ready endpoint of the Service of an external address, if only such nodes forward to it. */
function localNode(view: ExplainView, address: string): string | null {
  const service = serviceAt(view, address);
  if (service?.spec?.externalTrafficPolicy !== 'Local' || service.spec.clusterIPs?.includes(address))
    return null;
  return readyNodes(view, service)[0] ?? null;
}

/** Describes what has to bring packets of other networks to a node for an address that no node has or announces. */
function routedStep(view: ExplainView, address: string, node: string, local: string | null): ExplainStep {
  const service = serviceAt(view, address);
  const pod = view.podAt(address);
  const how = pod
    ? `${address} is the address of pod ${nameOf(pod)} on ${node}`
    : local !== null
      ? `a load balancer sends packets to ${address} only to nodes with a ready endpoint, such as ${node} (externalTrafficPolicy: Local)`
      : service?.spec?.clusterIPs?.includes(address)
        ? `${address} is a cluster IP`
        : `no node is known to announce ${address}`;
  return {
    subject: 'entry',
    object: service ? `Service ${nameOf(service)}` : pod ? `Pod ${nameOf(pod)}` : null,
    ruleOrKey: null,
    text: `${how}: a client reaches it only if its network has a route to ${address} through ${node}, which is not checked`,
  };
}

/** Describes how packets from outside reach the node of a load-balancer address; null if unknown. */
function entryStep(view: ExplainView, address: string): ExplainStep | null {
  const node = view.entryNode?.(address) ?? null;
  if (node === null) return null;
  const how = familyOf(address) === 'ipv6' ? 'neighbour discovery' : 'ARP';
  return {
    subject: 'entry',
    object: leaseOf(address),
    ruleOrKey: 'spec.holderIdentity',
    text: `${node} announces ${address} by ${how}: packets from the link enter there`,
  };
}

function noRouteCause(view: ExplainView, { label, kind }: Origin, address: string): Cause {
  const text = `${label} has no route to ${address}`;
  const service = serviceAt(view, address);
  if (service && kind !== 'pod') {
    const isClusterIp = service.spec?.clusterIPs?.includes(address) === true;
    return {
      text: isClusterIp ? `${text}: cluster IPs are reachable only inside the cluster` : text,
      object: `Service ${nameOf(service)}`,
      field: isClusterIp ? 'spec.type' : 'spec.externalIPs',
      fix: isClusterIp
        ? 'set it to NodePort or LoadBalancer, or add a route to the cluster IPs through a node'
        : `route ${address} to a node`,
    };
  }
  const pod = view.podAt(address);
  if (pod && kind !== 'pod') {
    const name = nameOf(pod);
    return {
      text: `${text}: pods are reachable only inside the cluster`,
      object: `Pod ${name}`,
      field: null,
      fix: 'create a Service of type NodePort or LoadBalancer for it',
    };
  }
  return {
    text,
    object: null,
    field: 'routes',
    fix: 'use an address that is reachable from there, or add a route',
  };
}

/** Explains that no host on the link has the address. */
function unannouncedCause(view: ExplainView, address: string): Cause {
  const service = serviceAt(view, address);
  if (!service) {
    return {
      text: `no host on the link has ${address}`,
      object: null,
      field: null,
      fix: 'use the address of a host, node or Service',
    };
  }
  const isExternal = service.spec?.externalIPs?.includes(address) === true;
  return {
    text: `no node announces ${address} on the link`,
    object: `Service ${nameOf(service)}`,
    field: isExternal ? 'spec.externalIPs' : 'status.loadBalancer.ingress',
    fix: isExternal
      ? 'add a route to it through a node, or use type LoadBalancer, whose addresses are announced'
      : 'check the load balancer that allocated the address: it does not announce it',
  };
}

/** Returns the reasons why packets from outside do not reach any node for one of Fairlead's load-balancer addresses. */
function noAnnouncerCauses(view: ExplainView, address: string): Cause[] {
  const service = serviceAt(view, address);
  if (!service || !allocatedAddresses(service).includes(address)) return [];
  if (!view.entryNode || view.entryNode(address) !== null) return [];
  const object = `Service ${nameOf(service)}`;
  const isLocal = service.spec?.externalTrafficPolicy === 'Local';
  return [
    {
      text: isLocal
        ? `no node announces ${address}: only nodes with a ready endpoint of ${object} may do so`
        : `no node announces ${address}`,
      object,
      field: isLocal ? 'spec.externalTrafficPolicy' : 'status.conditions',
      fix: isLocal
        ? 'make a pod of the Service ready, or set externalTrafficPolicy: Cluster'
        : 'check that a node is Ready, runs an agent with loadBalancer configured, and does not have the label node.kubernetes.io/exclude-from-external-load-balancers',
    },
  ];
}

const leaseOf = (address: string) => {
  const { namespace, name } = addressLeaseMetadata(address);
  return `Lease ${namespace}/${name}`;
};

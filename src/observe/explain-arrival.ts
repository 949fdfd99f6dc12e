import type { Service } from '../kube/types.ts';
import { cidrContains, familyOf, hostPort, parseCidr } from '../lib/address.ts';
import type { Protocol } from '../service/model.ts';
import { serviceAt } from './explain-causes.ts';
import { linkFault, podFault } from './explain-faults.ts';
import { hostAt, nameOf, nodeAt, placeOfPod } from './explain-places.ts';
import type { ExplainView } from './explain-view.ts';
import type { Arrival, Cause } from './explanation.ts';
import type { Place } from './fact-requests.ts';
import type { ListeningSocket } from './facts.ts';
import { WAY_OUT } from './way-out.ts';

/** The destination of a packet after translation. */
export interface Destined {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
  /** The Service of the endpoint; null if none. */
  readonly service: Service | null;
  /** Index of the Service's port; -1 if unknown. */
  readonly portIndex: number;
}

/** The outcome of a packet at its destination. */
export interface Arrived {
  readonly arrival: Arrival;
  readonly text: string;
  /** Null: a process accepts the packet. */
  readonly cause: Cause | null;
}

export const isLoopback = (address: string) => address.startsWith('127.') || address === '::1';

/** Returns the source address of packets to a loopback address. */
export const loopbackSource = (address: string) => (address.includes(':') ? '::1' : '127.0.0.1');

/** Follows a packet from a node to the host or pod that has the address, and checks the sockets there. */
export function arriveFrom(view: ExplainView, node: string, to: Destined): Arrived {
  const { address } = to;
  const here: Place = { kind: 'node', node };
  if (isLoopback(address)) return arriveAt(view, here, `node ${node}`, to);
  const pod = view.podAt(address);
  const place = pod && placeOfPod(pod);
  if (pod && place) {
    const fault = linkFault(view, node, pod.spec?.nodeName ?? node) ?? podFault(view, pod);
    return fault ? ofFault(fault) : arriveAt(view, place, `pod ${nameOf(pod)}`, to);
  }
  const owner = nodeAt(view, address)?.metadata?.name;
  if (owner !== undefined) {
    const fault = linkFault(view, node, owner);
    return fault ? ofFault(fault) : arriveAt(view, { kind: 'node', node: owner }, `node ${owner}`, to);
  }
  const host = hostAt(view, address);
  if (host !== null) {
    const fault = linkFault(view, node, null);
    return fault ? ofFault(fault) : arriveAt(view, { kind: 'host', name: host }, host, to);
  }
  const service = to.service && serviceAt(view, address);
  if (service?.spec?.clusterIPs?.includes(address)) {
    return unknown(
      `the endpoint ${address} is the cluster IP of Service ${nameOf(service)}; packets are translated once, and what happens to this one depends on the mode`,
    );
  }
  return arriveByRoute(view, node, to, podNetworkNode(view, address));
}

/** Follows the routes to an address that belongs to no known host. */
function arriveByRoute(view: ExplainView, node: string, to: Destined, peer: string | null): Arrived {
  const { address } = to;
  const place: Place = { kind: 'node', node };
  const route = view.facts.route(place, address);
  if (route === undefined) return unknown(`the route of ${node} to ${address} is not known`);
  if (route === null) {
    const text = `node ${node} has no route to ${address}`;
    return failed(
      'unreachable',
      text,
      `Node ${node}`,
      'routes',
      `give ${node} a route to it, or use another address; ${WAY_OUT}`,
    );
  }
  if (route.type === 'local') return arriveAt(view, place, `node ${node}`, to);
  const next = peer ?? (route.via === null ? node : (nodeAt(view, route.via)?.metadata?.name ?? null));
  const fault = linkFault(view, node, next);
  if (fault) return ofFault(fault);
  if (next === null) {
    return unknown(`${address} is routed to ${route.via}, which is not part of this cluster`);
  }
  if (next !== node) return arriveByRoute(view, next, to, next);
  if (peer === null && view.hosts.length === 0) {
    return unknown(`${address} is on the link of ${node}, and is not part of this cluster`);
  }
  const text =
    peer === null
      ? `no host on the link of ${node} has ${address}`
      : `${address} is in the pod network of ${node}, but no pod has it`;
  // A node answers for its pod network at once (unused-addresses.ts), but not the packets of its own processes. Neighbour
  // resolution fails after three requests, a second apart; then the node sends an ICMP error.
  return failed('no-host', text, null, null, 'use the address of a pod, node or host');
}

/** Returns the node whose pod network contains an address, or null. */
export function podNetworkNode(view: ExplainView, address: string): string | null {
  for (const { metadata, spec } of view.nodes()) {
    for (const text of spec?.podCIDRs ?? []) {
      const cidr = parseCidr(text);
      if (cidr && cidr.family === familyOf(address) && cidrContains(cidr, address))
        return metadata?.name ?? null;
    }
  }
  return null;
}

/** Checks whether a process in a network namespace accepts packets to one of its addresses. */
export function arriveAt(view: ExplainView, place: Place, label: string, to: Destined): Arrived {
  const { address, port, protocol } = to;
  if (protocol === 'SCTP') return unknown(`SCTP servers in ${label} are not checked`);
  const sockets = view.facts.sockets(place, protocol);
  if (sockets === undefined) return unknown(`the listening sockets of ${label} are not known`);
  const at = sockets.filter((socket) => socket.port === port);
  const taking = at.filter((socket) => takes(socket, address));
  if (taking.length > 0 && taking.every(({ isFull }) => isFull)) {
    const text = `${label} listens on port ${port}, but its process does not accept the connections that wait: the queue is full`;
    const object = label.startsWith('pod ') ? `P${label.slice(1)}` : null;
    return failed('queue-full', text, object, null, 'find out why the process hangs, or start it again');
  }
  if (taking.length > 0) {
    return {
      arrival: 'answered',
      text: `a process of ${label} listens on port ${port}/${protocol}`,
      cause: null,
    };
  }
  return { arrival: 'refused', ...whyNothingTakesIt(sockets, at, label, to) };
}

/** Reports whether a socket accepts packets to an address. */
export function takes(socket: ListeningSocket, address: string): boolean {
  if (socket.address === address || socket.address === `::ffff:${address}`) return true;
  if (socket.address === '::') return address.includes(':') || !socket.v6Only;
  return socket.address === '0.0.0.0' && !address.includes(':');
}

function whyNothingTakesIt(
  sockets: readonly ListeningSocket[],
  atPort: readonly ListeningSocket[],
  label: string,
  { address, port, protocol, service, portIndex }: Destined,
): { text: string; cause: Cause } {
  const object = label.startsWith('pod ') ? `P${label.slice(1)}` : null;
  const bound = [...new Set(atPort.map((socket) => socket.address))];
  if (bound.length > 0) {
    const text = `the process of ${label} listens on ${bound.map((ip) => hostPort({ ip, port })).join(', ')} only, not on ${address}`;
    const every = address.includes(':') ? '::' : '0.0.0.0';
    return {
      text,
      cause: { text, object, field: 'the address it listens on', fix: `let it listen on ${every}` },
    };
  }
  const others = new Set(sockets.filter((socket) => takes(socket, address)).map((socket) => socket.port));
  const listed = [...others].sort((a, b) => a - b);
  const some = listed.length > 4 ? `${listed.slice(0, 4).join(', ')} …` : listed.join(', ');
  const text = `nothing listens on port ${port}/${protocol} in ${label}${some && object ? `; it listens on ${some}` : ''}`;
  const meant =
    listed.length === 1 ? `${listed[0]}` : some ? `one of ${some}` : 'the port that the process listens on';
  if (service && service.spec?.clusterIP !== 'None') {
    const field = `spec.ports${portIndex < 0 ? '' : `[${portIndex}]`}.targetPort`;
    const fix = object ? `set ${field} to ${meant}` : `start a server on ${label}, port ${port}`;
    return { text, cause: { text, object: `Service ${nameOf(service)}`, field, fix } };
  }
  const fix =
    object && some
      ? `connect to port ${listed.length === 1 ? listed[0] : `${some}`}`
      : 'start the server, or use its port';
  return { text, cause: { text, object, field: null, fix } };
}

function failed(
  arrival: Arrival,
  text: string,
  object: string | null,
  field: string | null,
  fix: string,
): Arrived {
  return { arrival, text, cause: { text, object, field, fix } };
}

/** Returns the outcome of a packet that a planted fault drops. */
export function ofFault(cause: Cause): Arrived {
  return { arrival: 'fault', text: cause.text, cause };
}

function unknown(text: string): Arrived {
  return { arrival: 'unknown', text, cause: { text, object: null, field: null, fix: null } };
}

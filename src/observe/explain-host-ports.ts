import type { Pod } from '../kube/types.ts';
import { familyOf } from '../lib/address.ts';
import type { Packet } from '../service/model.ts';
import { type Destined, isLoopback } from './explain-arrival.ts';
import { podAddresses } from './explain-places.ts';
import { masqueraded, sourceSeenAt } from './explain-source.ts';
import type { ExplainView, Origin } from './explain-view.ts';

/** Host ports, as src/network/host-ports.ts forwards them: ports of a node's own addresses, the loopback ones included. */

/** Returns the end of the pod to which a port of its node is forwarded (containers[].ports[].hostPort); null if none. */
export function hostPortEnd(view: ExplainView, node: string, packet: Packet): Destined | null {
  if (!packet.destinationIsLocal) return null;
  const found = [...view.pods()].flatMap((pod) => forwards(pod, node, packet));
  // A port of one address comes before those of all addresses.
  const chosen = found.find(({ hostIP }) => hostIP === packet.destination) ?? found.find(isOfAll);
  return chosen?.end ?? null;
}

interface Forward {
  readonly hostIP: string;
  readonly end: Destined;
}

const isOfAll = ({ hostIP }: Forward) => hostIP === '' || hostIP === '0.0.0.0' || hostIP === '::';

function forwards(pod: Pod, node: string, { destination, port, protocol }: Packet): Forward[] {
  const { spec, status } = pod;
  if (spec?.nodeName !== node || spec.hostNetwork || status?.phase !== 'Running') return [];
  const address = podAddresses(pod).find((one) => familyOf(one) === familyOf(destination));
  if (address === undefined) return [];
  return spec.containers
    .flatMap(({ ports }) => ports ?? [])
    .filter(({ hostPort, protocol: own = 'TCP' }) => hostPort === port && own === protocol)
    .map(({ hostIP = '', containerPort }) => {
      return { hostIP, end: { address, port: containerPort, protocol, service: null, portIndex: -1 } };
    });
}

/** Returns the client address that the pod behind a host port sees; null if unknown. */
export function sourceBehindHostPort(
  view: ExplainView,
  origin: Origin,
  node: string,
  { source, destination }: Packet,
  end: Destined,
): string | null {
  const isItself = origin.pod !== null && origin.pod === view.podAt(end.address);
  // Neither could be answered: they are masqueraded.
  if (isLoopback(destination) || isItself) return masqueraded(view, node, end.address);
  if (origin.node !== node) return source;
  // The kernel chooses the source of the node's own packets before the rules replace the destination.
  return sourceSeenAt(view, origin, node, source, destination);
}

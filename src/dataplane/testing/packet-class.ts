import { cidrContains, familyOf } from '../../lib/address.ts';
import type { Packet, ServiceMap } from '../../service/model.ts';

/** A packet whose class is the one that rules can tell from it; others cannot be compared with the oracle. */
export function isConsistent(packet: Packet, map: ServiceMap): boolean {
  const family = familyOf(packet.source);
  if (family === null || family !== familyOf(packet.destination)) return false;
  const detection = map.node.localDetection;
  if (!('ipv4' in detection)) return true;
  const cidr = detection[family];
  return (cidr !== null && cidrContains(cidr, packet.source)) === (packet.sourceClass === 'pod');
}

/** Where such a packet comes into the node; null: it is the node's own. */
export function inInterface(packet: Packet, { node: { localDetection } }: ServiceMap): string | null {
  if (packet.sourceClass === 'node') return null;
  if (packet.sourceClass === 'external') return 'eth0';
  if (localDetection.mode === 'BridgeInterface') return localDetection.interface;
  return localDetection.mode === 'InterfaceNamePrefix' ? `${localDetection.prefix}7` : 'veth1';
}

/** Whether the destination is an address of the node, where the packet does not say so itself. */
export function isForNode({ destination, destinationIsLocal }: Packet, { node }: ServiceMap): boolean {
  const own = [node.ipv4, node.ipv6, '::1'].includes(destination) || destination.startsWith('127.');
  return destinationIsLocal ?? own;
}

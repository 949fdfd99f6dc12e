import { cidrContains, familyOf } from '../../lib/address.ts';
import type { Packet, ServiceMap } from '../../service/model.ts';

/**
 * Returns true if the rules can recognize the packet's class; other packets cannot be compared with the
 * oracle.
 */
export function isConsistent(packet: Packet, map: ServiceMap): boolean {
  const family = familyOf(packet.source);
  if (family === null || family !== familyOf(packet.destination)) return false;
  const detection = map.node.localDetection;
  if (!('ipv4' in detection)) return true;
  const cidr = detection[family];
  return (cidr !== null && cidrContains(cidr, packet.source)) === (packet.sourceClass === 'pod');
}

/** Returns the interface on which such a packet arrives; null: the node itself sends it. */
export function inInterface(packet: Packet, { node: { localDetection } }: ServiceMap): string | null {
  if (packet.sourceClass === 'node') return null;
  if (packet.sourceClass === 'external') return 'eth0';
  if (localDetection.mode === 'BridgeInterface') return localDetection.interface;
  return localDetection.mode === 'InterfaceNamePrefix' ? `${localDetection.prefix}7` : 'veth1';
}

/** Returns true if the destination is an address of the node, unless the packet says so itself. */
export function isForNode({ destination, destinationIsLocal }: Packet, map: ServiceMap): boolean {
  return destinationIsLocal ?? isOwnAddress(destination, map);
}

/** Returns true if the node itself has the address. */
export function isOwnAddress(address: string, { node }: ServiceMap): boolean {
  return [node.ipv4, node.ipv6, '::1'].includes(address) || address.startsWith('127.');
}

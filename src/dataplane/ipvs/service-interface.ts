import type { NetlinkSocket } from '../../kernel/netlink/socket.ts';
import type { NetnsRef } from '../../kernel/netns.ts';
import { addAddresses, deleteAddress, listAddresses } from '../../kernel/rtnetlink/addresses.ts';
import { watchNetwork } from '../../kernel/rtnetlink/events.ts';
import { addLink, deleteLink, findLink, openRouteSocket, setLink } from '../../kernel/rtnetlink/links.ts';
import { findRoute } from '../../kernel/rtnetlink/routes.ts';
import { FairleadError, hasCode } from '../../lib/errors.ts';
import { type Drift, driftsBetween } from '../dataplane.ts';
import { forgetSource } from './source-addresses.ts';

/**
 * The device with Services' addresses, so that the node accepts packets to them and IPVS processes them.
 */
export const INTERFACE = 'fairlead-ipvs';

/**
 * A host-only address: with RT_SCOPE_HOST it is not chosen as a source, and with arp_ignore 3 the node does
 * not answer ARP for it.
 */
const SCOPE_HOST = 254;

/** The addresses of other devices of the node, and those of the mode's interface. */
export interface BoundAddresses {
  readonly ours: ReadonlySet<string>;
  readonly others: ReadonlySet<string>;
}

/** Returns the device, created if necessary. Throws FairleadError (no-dummy) on a kernel without dummy devices. */
export function ensureInterface(netns?: NetnsRef): number {
  using socket = openRouteSocket(netns);
  const found = findLink(socket, INTERFACE);
  if (found && found.kind !== 'dummy') {
    throw new FairleadError(`the network device ${INTERFACE} is a ${found.kind ?? 'device'}, not a dummy`, {
      op: 'make the interface for Service addresses',
      code: 'EEXIST',
      object: INTERFACE,
      hint: `another program created it: remove it with "ip link delete ${INTERFACE}"`,
    });
  }
  if (!found) makeInterface(socket);
  const link = found ?? findLink(socket, INTERFACE);
  if (!link) throw new FairleadError(`${INTERFACE} was deleted`, { op: 'find link', code: 'ENODEV' });
  if (!link.up) setLink(socket, link.index, { up: true });
  return link.index;
}

function makeInterface(socket: NetlinkSocket): void {
  try {
    addLink(socket, { kind: 'dummy', name: INTERFACE });
  } catch (error) {
    if (!hasCode(error, 'EOPNOTSUPP', 'ENOTSUP')) throw error;
    throw new FairleadError(
      'this kernel has no dummy network devices, which the IPVS mode needs for the addresses of Services',
      {
        op: 'make the interface for Service addresses',
        code: 'no-dummy',
        object: 'module dummy',
        hint: 'load it with "modprobe dummy", or use another mode',
        cause: error,
      },
    );
  }
  const made = findLink(socket, INTERFACE);
  // No link-local address: the device never sends packets.
  if (made) setLink(socket, made.index, { linkLocalAddress: false });
}

/** Returns the device's index; null if it does not exist. */
export function findInterface(netns?: NetnsRef): number | null {
  using socket = openRouteSocket(netns);
  const link = findLink(socket, INTERFACE);
  return link?.kind === 'dummy' ? link.index : null;
}

export function readAddresses(device: number | null, netns?: NetnsRef): BoundAddresses {
  using socket = openRouteSocket(netns);
  const ours = new Set<string>();
  const others = new Set<string>();
  for (const address of listAddresses(socket)) {
    (address.device === device ? ours : others).add(address.address);
  }
  return { ours, others };
}

/** Returns true if an address is local. */
export function isLocal(address: string, netns?: NetnsRef): boolean {
  using socket = openRouteSocket(netns);
  return findRoute(socket, address)?.type === 'local';
}

/** Adds and removes addresses of the device. */
export async function changeAddresses(
  device: number,
  added: Iterable<string>,
  removed: Iterable<string>,
  netns?: NetnsRef,
): Promise<void> {
  using socket = openRouteSocket(netns);
  const onDevice = (address: string) => ({ device, address, prefix: address.includes(':') ? 128 : 32 });
  const wanted = [...added].map((address) => ({ ...onDevice(address), scope: SCOPE_HOST, deprecated: true }));
  if (wanted.length > 0) await addAddresses(socket, wanted);
  for (const address of removed) {
    deleteAddress(socket, onDevice(address));
    forgetSource(socket, device, address);
  }
}

/** Removes the device with its addresses. */
export function removeInterface(netns?: NetnsRef): void {
  using socket = openRouteSocket(netns);
  const link = findLink(socket, INTERFACE);
  if (link?.kind === 'dummy') deleteLink(socket, link.index);
}

/** An address that was added to a device of this node, or is gone. */
export interface AddressChange {
  readonly device: number;
  readonly address: string;
  readonly gone: boolean;
}

/** Calls back with each address that is added to or removed from a device of this node, and with null after lost events. */
export function watchAddresses(
  onChange: (change: AddressChange | null) => void,
  netns?: NetnsRef,
): { close(): void } {
  return watchNetwork(
    ['address', 'link'],
    (event) => {
      if (event.kind === 'overrun') onChange(null);
      else if (event.kind === 'address') {
        onChange({ device: event.address.device, address: event.address.address, gone: event.gone });
      } else if (event.kind === 'link' && event.link.name === INTERFACE && (event.gone || !event.link.up)) {
        onChange(null);
      }
    },
    netns,
  );
}

/** Compares the addresses of the mode's interface with `wanted`. */
export function compareAddresses(
  wanted: ReadonlySet<string>,
  shown: ReadonlySet<string>,
  others: ReadonlySet<string>,
): Drift[] {
  const nameOf = (address: string) => `address ${address} of ${INTERFACE}`;
  const twice = [...wanted].filter((address) => shown.has(address) && others.has(address));
  return [
    ...driftsBetween(new Map(wanted.entries()), new Map(shown.entries()), nameOf),
    ...twice.map((address): Drift => ({ object: nameOf(address), kind: 'unexpected' })),
  ];
}

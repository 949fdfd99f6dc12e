import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import { addAddress, deleteAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { type Link, setLink } from '../kernel/rtnetlink/links.ts';

/** An address that a device of the pod network has. */
export interface DeviceAddress {
  readonly address: string;
  readonly prefix: number;
  /** Metric of the route to the network of an IPv4 address; default 0. */
  readonly metric?: number;
}

/** Sets a device up, with an MTU and a MAC; returns a description of the differences. */
export function keepState(socket: NetlinkSocket, link: Link, wanted: { mtu: number; mac: string }): string[] {
  const { mtu, mac } = wanted;
  const wrong = [
    ...(link.up ? [] : ['was down']),
    ...(link.mtu === mtu ? [] : [`had the MTU ${link.mtu}`]),
    ...(link.mac === mac ? [] : [`had the MAC ${link.mac}`]),
  ];
  // To set a MAC, even the same one, makes the kernel forget all neighbours of the device, the permanent ones of pods, too.
  const changes = { ...(link.mtu === mtu ? {} : { mtu }), ...(link.mac === mac ? {} : { mac }), up: true };
  if (wrong.length > 0) setLink(socket, link.index, changes);
  return wrong.map((text) => `${link.name} ${text}`);
}

/**
 * Sets the addresses of a device, except for IPv6 link-local addresses; returns a description of the differences. An
 * existing address stays when its metric changes: the kernel adds the route with the new metric before it removes the other.
 */
export function keepAddresses(socket: NetlinkSocket, link: Link, wanted: readonly DeviceAddress[]): string[] {
  const device = link.index;
  const differences: string[] = [];
  const present = new Map(
    listAddresses(socket, { device })
      .filter((entry) => !entry.address.startsWith('fe80:'))
      .map((entry) => [`${entry.address}/${entry.prefix}`, entry]),
  );
  for (const { address, prefix, metric = 0 } of wanted) {
    const found = present.get(`${address}/${prefix}`);
    present.delete(`${address}/${prefix}`);
    if (found && (found.metric === metric || address.includes(':'))) continue;
    addAddress(socket, { device, address, prefix, metric });
    differences.push(
      found
        ? `address ${address} of ${link.name} had the metric ${found.metric}`
        : `address ${address} of ${link.name}`,
    );
  }
  // Left by an earlier pod network of this node.
  for (const address of present.values()) {
    deleteAddress(socket, address);
    differences.push(`${link.name} had the address ${address.address}`);
  }
  return differences;
}

import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { addAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { findLink, getLink, type Link, setLink } from '../kernel/rtnetlink/links.ts';
import { readSysctl, writeSysctls } from '../kernel/sysctl.ts';
import type { IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** The device by which a node reaches the others, as it was found. */
export interface Uplink {
  readonly name: string;
  readonly addresses: readonly { readonly address: string; readonly prefix: number }[];
}

/** Finds the device that has the node's first address. Throws EADDRNOTAVAIL where none has. */
export function findUplink(socket: NetlinkSocket, addresses: readonly string[]): Link {
  const [first] = addresses;
  const found = listAddresses(socket).find((entry) => entry.address === first);
  if (found) return getLink(socket, found.device);
  throw new FairleadError(`no network device has the node's address ${first ?? '(none given)'}`, {
    op: 'prepare node network',
    code: 'EADDRNOTAVAIL',
    hint: 'give the node an address that this machine has',
  });
}

/** Reads which of the node's addresses the device has, so that `restoreUplink` can put them back. */
export function recordUplink(socket: NetlinkSocket, link: Link, addresses: readonly string[]): Uplink {
  const present = listAddresses(socket, { device: link.index });
  return {
    name: link.name,
    addresses: present.filter(({ address }) => addresses.includes(address)),
  };
}

/** Sets a device up and puts back its addresses, as recorded; returns what was missing. */
export function restoreUplink(socket: NetlinkSocket, { name, addresses }: Uplink): string[] {
  const link = findLink(socket, name);
  if (!link) return [];
  const restored: string[] = [];
  if (!link.up) {
    setLink(socket, link.index, { up: true });
    restored.push(`${name} was down`);
  }
  const present = new Set(listAddresses(socket, { device: link.index }).map((entry) => entry.address));
  for (const { address, prefix } of addresses) {
    if (present.has(address)) continue;
    addAddress(socket, { device: link.index, address, prefix });
    restored.push(`address ${address} of ${name}`);
  }
  return restored;
}

/**
 * Lets the node pass packets on, in the families of its pods. Returns the settings that had another value.
 * `owned`: the device is this program's, so that it may be told to keep its addresses while it is down.
 */
export function prepareForwarding(
  uplink: string,
  settings: {
    readonly families: ReadonlySet<IPFamily>;
    readonly tunnelled: boolean;
    readonly owned: boolean;
    readonly netns?: NetnsRef | undefined;
  },
): string[] {
  const { families, tunnelled, owned, netns } = settings;
  const wanted: Record<string, number> = {};
  if (families.has('ipv4')) {
    wanted['net.ipv4.ip_forward'] = 1;
    // Pods of this node reach each other by the device that they came in by, and are not to be told of a shorter way;
    // nor are clients outside whose way to a Service's address is this node, which has no other. Each redirect, sent
    // or kept back, would also use up what the kernel grants a host of ICMP messages, and with it refusals of
    // datagrams. The kernel sends redirects where this or the device's own switch is on, so other devices keep to
    // their own.
    wanted['net.ipv4.conf.all.send_redirects'] = 0;
    wanted[`net/ipv4/conf/${uplink}/send_redirects`] = 0;
    // A pod that speaks to this node's own address comes by the uplink, while the way back to it is the tunnel: a
    // strict check of sources would drop it. The kernel takes the stricter of "all" and the device's own, but 2 (loose)
    // beats 1.
    if (tunnelled) {
      const own = `net/ipv4/conf/${uplink}/rp_filter`;
      const values = [readSysctl(own, netns), readSysctl('net.ipv4.conf.all.rp_filter', netns)];
      if (values.includes('1') && !values.includes('2')) wanted[own] = 2;
    }
  }
  if (families.has('ipv6')) {
    // A router ignores router advertisements unless told 2: a node that has its default route from them would lose it.
    const acceptRa = `net/ipv6/conf/${uplink}/accept_ra`;
    if (readSysctl(acceptRa, netns) === '1') wanted[acceptRa] = 2;
    wanted['net.ipv6.conf.all.forwarding'] = 1;
    // By default the kernel takes IPv6 addresses from a device that goes down, and does not give them back.
    if (owned) wanted[`net/ipv6/conf/${uplink}/keep_addr_on_down`] = 1;
  }
  return writeDiffering(wanted, netns);
}

/** Writes settings that have another value, and returns them as "name was value". */
export function writeDiffering(
  wanted: Readonly<Record<string, number>>,
  netns: NetnsRef | undefined,
): string[] {
  const differing = Object.entries(wanted).flatMap(([name, value]) => {
    const current = readSysctl(name, netns);
    return current === null || current === String(value) ? [] : [{ name, value, current }];
  });
  writeSysctls(Object.fromEntries(differing.map(({ name, value }) => [name, value])), netns);
  return differing.map(({ name, current }) => `${name} was ${current}`);
}

import type { NetlinkSocket } from '../kernel/netlink/socket.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { addAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { findLink, getLink, type Link, setLink } from '../kernel/rtnetlink/links.ts';
import { readSysctl, writeSysctls } from '../kernel/sysctl.ts';
import type { IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

/** The device through which a node reaches the others, with its original state. */
export interface Uplink {
  readonly name: string;
  readonly addresses: readonly { readonly address: string; readonly prefix: number }[];
}

/** Finds the device with the node's first address. Throws EADDRNOTAVAIL if there is none. */
export function findUplink(socket: NetlinkSocket, addresses: readonly string[]): Link {
  const [first] = addresses;
  const found = listAddresses(socket).find((entry) => entry.address === first);
  if (found) return getLink(socket, found.device);
  throw new FairleadError(`no network device has the node's address ${first ?? '(none given)'}`, {
    op: 'prepare node network',
    code: 'EADDRNOTAVAIL',
    hint: 'use a node address that this machine has',
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

/** Sets a device up and restores its recorded addresses; returns a description of the changes. */
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
 * Enables forwarding on the node, in the families of its pods. Returns the settings that had another value.
 * `owned`: this program owns the device, and may configure it to keep its addresses while it is down.
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
    // Packets between pods of this node leave by the device by which they entered, which must not cause ICMP redirects;
    // nor must packets of clients outside to a Service's address through this node. Redirects would also use up the
    // kernel's rate limit of ICMP messages, which rejections of datagrams need. The kernel sends redirects if this or the
    // device's own setting is on, so other devices keep theirs.
    wanted['net.ipv4.conf.all.send_redirects'] = 0;
    wanted[`net/ipv4/conf/${uplink}/send_redirects`] = 0;
    // Packets from a pod to this node's address arrive on the uplink, while the route back is the tunnel:
    // strict reverse path filtering would drop them. The kernel uses the maximum of "all" and the device's
    // value, so 2 (loose) overrides 1.
    if (tunnelled) {
      const own = `net/ipv4/conf/${uplink}/rp_filter`;
      const values = [readSysctl(own, netns), readSysctl('net.ipv4.conf.all.rp_filter', netns)];
      if (values.includes('1') && !values.includes('2')) wanted[own] = 2;
    }
  }
  if (families.has('ipv6')) {
    // With forwarding, router advertisements are ignored unless accept_ra is 2: a node would lose its default route.
    const acceptRa = `net/ipv6/conf/${uplink}/accept_ra`;
    if (readSysctl(acceptRa, netns) === '1') wanted[acceptRa] = 2;
    wanted['net.ipv6.conf.all.forwarding'] = 1;
    // By default the kernel removes IPv6 addresses from a device that goes down, and does not restore them.
    if (owned) wanted[`net/ipv6/conf/${uplink}/keep_addr_on_down`] = 1;
  }
  return writeDiffering(wanted, netns);
}

/** Writes settings that differ, and returns them as "name was value". */
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

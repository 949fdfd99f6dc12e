import type { NetnsRef } from '../../kernel/netns.ts';
import { findLink, listLinks, openRouteSocket, setLink } from '../../kernel/rtnetlink/links.ts';
import { readSysctl, writeSysctl, writeSysctls } from '../../kernel/sysctl.ts';
import { FairleadError } from '../../lib/errors.ts';
import { INTERFACE } from './service-interface.ts';

const ARP_IGNORE = 'net.ipv4.conf.all.arp_ignore';
/** Do not answer ARP for addresses of scope host, such as those of the mode's interface. */
const NOT_HOST_SCOPE = '3';

const routeLocalnet = (device: string) => `net/ipv4/conf/${device}/route_localnet`;
/** Any number but 0 means on; this one identifies settings made by this mode. */
const ON = '2';

/**
 * Settings that this mode needs. conntrack: IPVS connections are tracked, so that they can be masqueraded.
 * expire_nodest_conn: a flow whose real server was removed is rescheduled or ended. expire_quiescent_template: a
 * persistent client leaves a real server of weight 0.
 */
const NEEDED = {
  'net.ipv4.vs.conntrack': 1,
  'net.ipv4.vs.expire_nodest_conn': 1,
  'net.ipv4.vs.expire_quiescent_template': 1,
} as const;

/** The settings whose values the mode records before it changes them, to give them back as it found them. */
const RECORDED: readonly string[] = [...Object.keys(NEEDED), ARP_IGNORE];
const RECORD_PREFIX = 'found:';

/**
 * Applies the settings of this mode; its interface has to exist. `localhostNodePorts`: IPv4 node ports
 * answer on loopback addresses. Throws FairleadError if the kernel lacks a setting.
 */
export function applySettings(localhostNodePorts: boolean, netns?: NetnsRef): void {
  recordSettings(netns);
  const [missing] = writeSysctls(NEEDED, netns);
  if (missing !== undefined) {
    throw new FairleadError(`this kernel's IPVS has no setting ${missing}`, {
      op: 'set up IPVS',
      code: 'no-ipvs-setting',
      object: missing,
      hint: 'it needs a kernel built with CONFIG_IP_VS_NFCT; use another mode here',
    });
  }
  // A stricter value that the administrator set is kept.
  if (readSysctl(ARP_IGNORE, netns) === '0') writeSysctl(ARP_IGNORE, NOT_HOST_SCOPE, netns);
  if (localhostNodePorts) allowLoopback(netns);
  else restoreLoopback(netns);
}

/**
 * Gives the settings of this mode back as it found them, except for those that another program has changed since. Needs the
 * mode's interface, which has the record; without one, of an earlier version, the kernel's defaults are written. `shared`:
 * other programs have virtual servers; IPVS's own settings stay.
 */
export function restoreSettings({ shared }: { shared: boolean }, netns?: NetnsRef): void {
  const found = readRecord(netns);
  const restore = (name: string, ours: string) => {
    if (readSysctl(name, netns) === ours) writeSysctl(name, found?.get(name) ?? '0', netns);
  };
  restore(ARP_IGNORE, NOT_HOST_SCOPE);
  restoreLoopback(netns);
  if (shared) return;
  for (const [name, ours] of Object.entries(NEEDED)) restore(name, String(ours));
}

/**
 * Records the settings in the alias of the mode's interface, unless it has a record: the interface is there exactly as long
 * as the mode's changes are, whichever process ends the mode, and none of them needs a folder for it.
 */
function recordSettings(netns: NetnsRef | undefined): void {
  using socket = openRouteSocket(netns);
  const link = findLink(socket, INTERFACE);
  if (!link || link.alias.startsWith(RECORD_PREFIX)) return;
  const values = RECORDED.flatMap((name) => {
    const value = readSysctl(name, netns);
    return value === null ? [] : [`${nameInRecord(name)}=${value}`];
  });
  setLink(socket, link.index, { alias: `${RECORD_PREFIX} ${values.join(' ')}` });
}

/** Returns the recorded values; null: there is no record. */
function readRecord(netns: NetnsRef | undefined): ReadonlyMap<string, string> | null {
  using socket = openRouteSocket(netns);
  const alias = findLink(socket, INTERFACE)?.alias ?? '';
  if (!alias.startsWith(RECORD_PREFIX)) return null;
  const values = new Map(
    alias
      .slice(RECORD_PREFIX.length)
      .trim()
      .split(' ')
      .map((entry) => entry.split('=') as [string, string]),
  );
  return new Map(
    RECORDED.flatMap((name) => {
      const value = values.get(nameInRecord(name));
      // Another program may have written the alias.
      return value !== undefined && /^\d{1,3}$/.test(value) ? [[name, value] as const] : [];
    }),
  );
}

const nameInRecord = (name: string) => name.slice(name.lastIndexOf('.') + 1);

/**
 * Routes packets from and to 127.0.0.0/8 on each device. With `route_localnet` on for a device, arp_ignore
 * no longer covers its addresses of scope host (confirm_addr_indev in net/ipv4/devinet.c): it has to be off
 * for the mode's interface, and for `all`.
 */
function allowLoopback(netns?: NetnsRef): void {
  // The default first, since new devices inherit it.
  for (const name of ['default', ...otherDevices(netns)]) {
    if (readSysctl(routeLocalnet(name), netns) === '0') writeSysctl(routeLocalnet(name), ON, netns);
  }
  writeSysctl(routeLocalnet(INTERFACE), 0, netns);
  writeSysctl(routeLocalnet('all'), 0, netns);
}

function restoreLoopback(netns?: NetnsRef): void {
  for (const name of ['default', ...otherDevices(netns)]) {
    if (readSysctl(routeLocalnet(name), netns) === ON) writeSysctl(routeLocalnet(name), 0, netns);
  }
}

function otherDevices(netns?: NetnsRef): string[] {
  using socket = openRouteSocket(netns);
  return listLinks(socket).flatMap(({ name }) => (name === INTERFACE || name === 'lo' ? [] : [name]));
}

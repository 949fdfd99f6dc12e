import type { NetnsRef } from '../../kernel/netns.ts';
import { listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
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

/**
 * Applies the settings of this mode; its interface has to exist. `localhostNodePorts`: IPv4 node ports
 * answer on loopback addresses. Throws FairleadError if the kernel lacks a setting.
 */
export function applySettings(localhostNodePorts: boolean, netns?: NetnsRef): void {
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

/** Restores the settings of this mode. `shared`: other programs have virtual servers; IPVS's own settings stay. */
export function restoreSettings({ shared }: { shared: boolean }, netns?: NetnsRef): void {
  if (readSysctl(ARP_IGNORE, netns) === NOT_HOST_SCOPE) writeSysctl(ARP_IGNORE, 0, netns);
  restoreLoopback(netns);
  if (shared) return;
  for (const name of Object.keys(NEEDED)) writeSysctl(name, 0, netns);
}

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

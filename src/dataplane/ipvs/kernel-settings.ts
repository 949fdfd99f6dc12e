import type { NetnsRef } from '../../kernel/netns.ts';
import { listLinks, openRouteSocket } from '../../kernel/rtnetlink/links.ts';
import { readSysctl, writeSysctl, writeSysctls } from '../../kernel/sysctl.ts';
import { FairleadError } from '../../lib/errors.ts';
import { INTERFACE } from './service-interface.ts';

const ARP_IGNORE = 'net.ipv4.conf.all.arp_ignore';
/** Do not answer for addresses of scope host, such as ours; for others as ever. */
const NOT_HOST_SCOPE = '3';

const routeLocalnet = (device: string) => `net/ipv4/conf/${device}/route_localnet`;
/** On, as any number but 0 is, and tells our settings from others'. */
const ON = '2';

/**
 * What IPVS needs. conntrack: its connections are tracked, or they could not be masqueraded. expire_nodest_conn: a
 * flow whose real server was removed is balanced anew, or ends. expire_quiescent_template: a persistent client leaves
 * a real server that takes nothing new.
 */
const NEEDED = {
  'net.ipv4.vs.conntrack': 1,
  'net.ipv4.vs.expire_nodest_conn': 1,
  'net.ipv4.vs.expire_quiescent_template': 1,
} as const;

/**
 * Gives the kernel the settings of this mode, once our interface is there. `localhostNodePorts`: IPv4 node ports on
 * loopback addresses. Throws FairleadError when the kernel lacks one.
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
  // Stricter values of the administrator keep addresses of other devices silent as well.
  if (readSysctl(ARP_IGNORE, netns) === '0') writeSysctl(ARP_IGNORE, NOT_HOST_SCOPE, netns);
  if (localhostNodePorts) allowLoopback(netns);
  else restoreLoopback(netns);
}

/**
 * Puts back what only this mode wants. `shared`: other programs have virtual servers, which keep IPVS's settings.
 */
export function restoreSettings({ shared }: { shared: boolean }, netns?: NetnsRef): void {
  if (readSysctl(ARP_IGNORE, netns) === NOT_HOST_SCOPE) writeSysctl(ARP_IGNORE, 0, netns);
  restoreLoopback(netns);
  if (shared) return;
  for (const name of Object.keys(NEEDED)) writeSysctl(name, 0, netns);
}

/**
 * Lets packets from 127.0.0.0/8 out and their answers in, on each device for itself: where `route_localnet` is on for
 * a device, arp_ignore takes its addresses of scope host for others (confirm_addr_indev in net/ipv4/devinet.c), so
 * that it must be off for ours, and with it `all`.
 */
function allowLoopback(netns?: NetnsRef): void {
  // New devices take the default over, so that it comes before the list of those that exist.
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

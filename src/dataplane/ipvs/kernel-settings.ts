import type { NetnsRef } from '../../kernel/netns.ts';
import { readSysctl, writeSysctl, writeSysctls } from '../../kernel/sysctl.ts';
import { FairleadError } from '../../lib/errors.ts';

const ROUTE_LOCALNET = 'net.ipv4.conf.all.route_localnet';
const ARP_IGNORE = 'net.ipv4.conf.all.arp_ignore';
/** Do not answer for addresses of scope host, such as ours; for others as ever. */
const NOT_HOST_SCOPE = '3';

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

/** Gives the kernel the settings of this mode. Throws FairleadError when it lacks one. */
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
  if (localhostNodePorts) writeSysctl(ROUTE_LOCALNET, 1, netns);
}

/** Puts back what only this mode wants. `shared`: other programs have virtual servers, which keep IPVS's settings. */
export function restoreSettings(
  options: { shared: boolean; localhostNodePorts: boolean },
  netns?: NetnsRef,
): void {
  if (readSysctl(ARP_IGNORE, netns) === NOT_HOST_SCOPE) writeSysctl(ARP_IGNORE, 0, netns);
  if (options.localhostNodePorts && readSysctl(ROUTE_LOCALNET, netns) === '1') {
    writeSysctl(ROUTE_LOCALNET, 0, netns);
  }
  if (options.shared) return;
  for (const name of Object.keys(NEEDED)) writeSysctl(name, 0, netns);
}

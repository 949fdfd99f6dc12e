import type { NetnsRef } from '../../kernel/netns.ts';
import {
  keepLoopbackRoutes,
  type LoopbackRoutes,
  removeLoopbackRoutes,
} from '../../kernel/rtnetlink/loopback-routes.ts';
import { readSysctl, writeSysctl } from '../../kernel/sysctl.ts';
import type { IPFamily } from '../../lib/address.ts';

const ROUTE_LOCALNET = 'net.ipv4.conf.all.route_localnet';
/**
 * Any number but 0 means on; this one identifies the setting as ours, also for a later process. A kube-proxy that starts
 * writes 1, unless it is 1, so that it keeps the setting that it relies on.
 */
const ON = '2';

/** Makes node ports answer on loopback addresses: by `route_localnet` for IPv4, by routes to ::1 for IPv6. */
export interface LoopbackAccess {
  /** Call it after the rules that guard 127.0.0.0/8 are programmed. */
  allow(wanted: boolean): void;
  /** Stops watching the devices; the kernel's state stays. */
  close(): void;
  /** Reverts `allow`, unless another mode succeeds this one. A setting that another program made is kept. */
  remove(state: { readonly succeeded: boolean }): void;
}

export function createLoopbackAccess(
  families: readonly IPFamily[],
  netns: NetnsRef | undefined,
): LoopbackAccess {
  let routes: LoopbackRoutes | null = null;
  function close(): void {
    routes?.close();
    routes = null;
  }
  return {
    allow(wanted) {
      if (!wanted) return close();
      if (families.includes('ipv4') && readSysctl(ROUTE_LOCALNET, netns) === '0')
        writeSysctl(ROUTE_LOCALNET, ON, netns);
      if (families.includes('ipv6')) routes ??= keepLoopbackRoutes(netns);
    },
    close,
    remove({ succeeded }) {
      close();
      if (succeeded) return;
      if (families.includes('ipv4') && readSysctl(ROUTE_LOCALNET, netns) === ON)
        writeSysctl(ROUTE_LOCALNET, 0, netns);
      if (families.includes('ipv6')) removeLoopbackRoutes(netns);
    },
  };
}

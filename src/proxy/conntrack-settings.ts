import type { NetnsRef } from '../kernel/netns.ts';
import { readSysctl, writeSysctl } from '../kernel/sysctl.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/** Settings of connection tracking, as in KubeProxyConfiguration's `conntrack`; 0 keeps the kernel's value. */
export interface ConntrackSettings {
  /** The maximum number of tracked connections per CPU. */
  readonly maxPerCore: number;
  /** The lower bound of the maximum number of tracked connections. */
  readonly min: number;
  readonly tcpEstablishedTimeoutMs: number;
  readonly tcpCloseWaitTimeoutMs: number;
  readonly tcpBeLiberal: boolean;
  readonly udpTimeoutMs: number;
  readonly udpStreamTimeoutMs: number;
}

/** kube-proxy's defaults (cmd/kube-proxy/app, SetDefaults_KubeProxyConfiguration). */
export const DEFAULT_CONNTRACK: ConntrackSettings = {
  maxPerCore: 32_768,
  min: 131_072,
  tcpEstablishedTimeoutMs: 24 * 3_600_000,
  tcpCloseWaitTimeoutMs: 3_600_000,
  tcpBeLiberal: false,
  udpTimeoutMs: 0,
  udpStreamTimeoutMs: 0,
};

/**
 * Returns the sysctls for `settings`, without the table's size. Timeouts are whole seconds in the
 * kernel (Documentation/networking/nf_conntrack-sysctl.rst).
 */
export function conntrackSysctls(settings: ConntrackSettings): Record<string, number> {
  const timeouts: readonly [name: string, milliseconds: number][] = [
    ['tcp_timeout_established', settings.tcpEstablishedTimeoutMs],
    ['tcp_timeout_close_wait', settings.tcpCloseWaitTimeoutMs],
    ['udp_timeout', settings.udpTimeoutMs],
    ['udp_timeout_stream', settings.udpStreamTimeoutMs],
  ];
  const sysctls: Record<string, number> = {};
  for (const [name, milliseconds] of timeouts) {
    if (milliseconds > 0) sysctls[`net.netfilter.nf_conntrack_${name}`] = Math.ceil(milliseconds / 1000);
  }
  if (settings.tcpBeLiberal) sysctls['net.netfilter.nf_conntrack_tcp_be_liberal'] = 1;
  return sysctls;
}

/** Returns the required size of the connection tracking table; 0: unchanged. */
export function maxConnections({ maxPerCore, min }: ConntrackSettings, processors: number): number {
  return maxPerCore > 0 ? Math.max(maxPerCore * processors, min) : 0;
}

/**
 * Writes the settings to the kernel. The size of the table is a setting of the machine: it is only raised, and a
 * namespace that may not write it keeps the machine's, which is logged. Other failures are logged as warnings; the
 * proxy works without these settings.
 */
export function applyConntrackSettings(
  settings: ConntrackSettings,
  processors: number,
  logger: Logger,
  netns?: NetnsRef,
): void {
  const write = (name: string, value: number): void => {
    try {
      if (!writeSysctl(name, value, netns))
        logger.warn({ setting: name }, 'this kernel does not have the setting');
    } catch (error) {
      logger.warn(
        { setting: name, value, error: messageOf(error) },
        'failed to change a setting of connection tracking',
      );
    }
  };
  for (const [name, value] of Object.entries(conntrackSysctls(settings))) write(name, value);
  const wanted = maxConnections(settings, processors);
  const current = Number(readSysctl('net.netfilter.nf_conntrack_max', netns) ?? 0);
  if (wanted <= current) return;
  try {
    writeSysctl('net.netfilter.nf_conntrack_max', wanted, netns);
  } catch (error) {
    logger.info(
      { wanted, current, error: messageOf(error) },
      "the maximum number of tracked connections is unchanged: only the machine's own network namespace may set it",
    );
  }
}

import { NODE_NET_SYSCTLS } from '../kernel/sysctl.ts';
import type { Installation, KubeObject } from './installation-shared.ts';

/** The capabilities of the agents' container (capabilities(7)), the installations that need them, and the reason. */
export const AGENT_CAPABILITIES: readonly {
  readonly name: string;
  readonly parts: readonly Installation[];
  readonly reason: string;
}[] = [
  {
    name: 'NET_ADMIN',
    parts: ['proxy', 'proxy-dns', 'all', 'policy'],
    reason: 'nf_tables, iptables, IPVS, routes, devices, connection tracking, settings below `/proc/sys/net`',
  },
  {
    name: 'NET_RAW',
    parts: ['proxy', 'proxy-dns', 'all', 'policy'],
    reason: 'packet sockets: announcements of addresses, `capture`, `trace` and `flows`; iptables',
  },
  {
    name: 'SYS_ADMIN',
    parts: ['proxy', 'proxy-dns', 'all', 'policy'],
    reason:
      'entering network namespaces of pods; BPF programs, and their file system if the node has not mounted it',
  },
  { name: 'NET_BIND_SERVICE', parts: ['proxy-dns', 'all'], reason: 'DNS at port 53' },
];

/** Returns the security context of the agents' container. */
export function agentSecurity(parts: Installation, isPrivileged: boolean): KubeObject {
  // The agent writes rules and sysctls of the node's network, like kube-proxy.
  if (isPrivileged) return { privileged: true, readOnlyRootFilesystem: true };
  const needed = AGENT_CAPABILITIES.filter((one) => one.parts.includes(parts));
  return {
    capabilities: { drop: ['ALL'], add: needed.map(({ name }) => name) },
    readOnlyRootFilesystem: true,
    seccompProfile: { type: 'RuntimeDefault' },
  };
}

/** The mount of the node's settings, which a privileged container can write at their own place. */
export const SYSCTL_MOUNT = {
  name: 'sysctls',
  path: '/proc/sys/net',
  mountPath: NODE_NET_SYSCTLS,
  type: 'Directory',
} as const;

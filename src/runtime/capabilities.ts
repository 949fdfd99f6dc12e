import { readFileSync } from 'node:fs';

// The default set of container runtimes (runtime-spec, Docker, containerd).
const DEFAULT = [
  'CAP_AUDIT_WRITE',
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_MKNOD',
  'CAP_NET_BIND_SERVICE',
  'CAP_NET_RAW',
  'CAP_SETFCAP',
  'CAP_SETGID',
  'CAP_SETPCAP',
  'CAP_SETUID',
  'CAP_SYS_CHROOT',
];

/** By number (linux/capability.h). */
const ALL = (
  'CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE ' +
  'NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN ' +
  'SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE ' +
  'MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE'
)
  .split(' ')
  .map((name) => `CAP_${name}`);

/** Returns the capabilities that this process can grant: its bounding set (capabilities(7)). */
export function boundingCapabilities(status = readFileSync('/proc/self/status', 'utf8')): readonly string[] {
  const set = BigInt(`0x${/^CapBnd:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
  return ALL.filter((_, number) => (set >> BigInt(number)) & 1n);
}

/**
 * Returns a container's capabilities: the default set with its changes. "ALL", and a privileged container, mean the
 * bounding set; a capability that is added by name is always requested, and an error if it is missing.
 */
export function containerCapabilities(
  security:
    | {
        readonly privileged?: boolean | undefined;
        readonly capabilities?: { readonly add?: string[]; readonly drop?: string[] } | undefined;
      }
    | undefined,
  bounding: readonly string[],
): string[] {
  if (security?.privileged) return [...bounding];
  const full = (name: string) => (name.startsWith('CAP_') ? name : `CAP_${name}`);
  const drop = (security?.capabilities?.drop ?? []).map(full);
  const add = (security?.capabilities?.add ?? []).map(full);
  if (add.includes('CAP_ALL')) return bounding.filter((name) => !drop.includes(name));
  const base = drop.includes('CAP_ALL')
    ? []
    : DEFAULT.filter((name) => bounding.includes(name) && !drop.includes(name));
  return [...new Set([...base, ...add])];
}

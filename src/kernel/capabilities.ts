import { readFileSync } from 'node:fs';

/** By number (linux/capability.h). */
const NAMES = (
  'CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE ' +
  'NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN ' +
  'SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE ' +
  'MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE'
)
  .split(' ')
  .map((name) => `CAP_${name}`);

/** Returns a set of this process's capabilities (capabilities(7)). `status`: /proc/self/status. */
export function readCapabilities(
  set: 'CapEff' | 'CapBnd',
  status = readFileSync('/proc/self/status', 'utf8'),
): readonly string[] {
  const bits = BigInt(`0x${new RegExp(`^${set}:\\s*([0-9a-f]+)`, 'm').exec(status)?.[1] ?? '0'}`);
  return NAMES.filter((_, number) => (bits >> BigInt(number)) & 1n);
}

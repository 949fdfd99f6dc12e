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

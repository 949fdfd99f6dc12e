/** Words before those of a command, which then has a read-only /proc/sys, as in a container that is not privileged. */
export const WITH_READ_ONLY_SYSCTLS: readonly string[] = [
  ...['unshare', '--mount', 'sh', '-c'],
  'mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec "$@"',
  'sh',
];

import { readOptionalFile } from '../../kernel/optional-file.ts';

/** Why this machine makes no user namespaces for ordinary users, and the fix. */
export interface UserNamespaceProblem {
  readonly message: string;
  readonly hint: string;
}

/** Reads a file below /proc/sys; null: the kernel does not have it. */
type ReadSetting = (name: string) => string | null;

const readSetting: ReadSetting = (name) => readOptionalFile(`/proc/sys/${name}`)?.trim() ?? null;

const PROFILE =
  'for this program only, see https://ubuntu.com/blog/ubuntu-23-10-restricted-unprivileged-user-namespaces';

/**
 * Returns the setting that keeps ordinary users from making user namespaces; null: none that is known. The settings are those
 * of the kernel (user_namespaces(7)), of Debian before 11, and of Ubuntu from 23.10 on.
 */
export function userNamespaceProblem(read: ReadSetting = readSetting): UserNamespaceProblem | null {
  if (read('user/max_user_namespaces') === '0')
    return setting('user.max_user_namespaces', 0, 'sudo sysctl -w user.max_user_namespaces=15000');
  if (read('kernel/unprivileged_userns_clone') === '0')
    return setting(
      'kernel.unprivileged_userns_clone',
      0,
      'sudo sysctl -w kernel.unprivileged_userns_clone=1',
    );
  if (read('kernel/apparmor_restrict_unprivileged_userns') === '1')
    return setting(
      'kernel.apparmor_restrict_unprivileged_userns',
      1,
      `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (${PROFILE})`,
    );
  return null;
}

const setting = (name: string, value: number, fix: string): UserNamespaceProblem => ({
  message: `${name} is ${value}`,
  hint: `${fix}; or start the cluster as root: sudo fairlead up`,
});

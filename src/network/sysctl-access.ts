import { accessSync, constants } from 'node:fs';
import { sysctlFile } from '../kernel/sysctl.ts';

/** Any network setting: all are in one mount. */
const SETTING = 'net.ipv4.ip_forward';

/**
 * Returns why this process cannot write the kernel's network settings, with the fix; null: it can. Container runtimes
 * mount /proc/sys read-only in containers that are not privileged; root gets EROFS then, from access(2) too.
 */
export function sysctlProblem(): string | null {
  try {
    accessSync(sysctlFile(SETTING), constants.W_OK);
    return null;
  } catch (error) {
    return `pods cannot be connected: /proc/sys is not writable (${(error as NodeJS.ErrnoException).code}); run the agent's container privileged, or mount /proc/sys writable in it`;
  }
}

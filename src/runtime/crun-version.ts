import { hasCode, messageOf } from '../lib/errors.ts';
import { runCommand } from './oci-runtime.ts';

/**
 * The newest release of crun whose notes name fixes of vulnerabilities that images or containers can use:
 * CVE-2026-115520 and CVE-2026-115521 in 1.31, CVE-2026-84042, CVE-2026-88264 and CVE-2026-88265 in 1.30.
 * https://github.com/containers/crun/releases
 */
const SAFE = { major: 1, minor: 31 } as const;
const SAFE_TEXT = `${SAFE.major}.${SAFE.minor}`;

const VERSION_TIMEOUT_MS = 5000;
/** A version that is shown. */
const MAX_VERSION_LENGTH = 40;

/** Returns the warning about an old crun; null: it is new enough. `answer`: of `crun --version`. */
export function crunWarning(answer: string): string | null {
  const found = /^crun version ((\d+)\.(\d+)\S*)/m.exec(answer);
  if (!found)
    return `the version of crun cannot be read; releases before ${SAFE_TEXT} have known vulnerabilities`;
  const [, version = '', major, minor] = found;
  const isSafe = Number(major) > SAFE.major || (Number(major) === SAFE.major && Number(minor) >= SAFE.minor);
  return isSafe
    ? null
    : `crun ${version.slice(0, MAX_VERSION_LENGTH)} is older than ${SAFE_TEXT}, which fixes CVE-2026-115520, CVE-2026-115521 and earlier vulnerabilities that images can use; distributions also fix them without a new version number`;
}

/** Asks the installed crun for its version; returns the warning about it. Null: it is new enough, or not installed. */
export async function installedCrunWarning(): Promise<string | null> {
  try {
    const { stdout } = await runCommand('crun', ['--version'], { timeoutMs: VERSION_TIMEOUT_MS });
    return crunWarning(stdout);
  } catch (error) {
    return hasCode(error, 'ENOENT') ? null : `the version of crun cannot be read: ${messageOf(error)}`;
  }
}

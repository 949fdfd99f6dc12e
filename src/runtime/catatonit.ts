import { FairleadError, hasCode } from '../lib/errors.ts';
import { runCommand } from './oci-runtime.ts';

const HELP_TIMEOUT_MS = 5000;

/** Returns whether a help text of catatonit lists the mode of pause processes (-P), which came with 0.1.7. */
export const canPause = (help: string): boolean => /\[-\w*P\w*\]|^\s+-P\b/m.test(help);

/** Throws FairleadError if the installed catatonit cannot be the pause process of pods, or is missing. */
export async function requireCatatonit(): Promise<void> {
  const fix = 'install catatonit 0.1.7 or later (Debian 12 and Ubuntu 22.04 have it)';
  try {
    const { stdout, stderr } = await runCommand('catatonit', ['-h'], { timeoutMs: HELP_TIMEOUT_MS });
    if (canPause(stdout + stderr)) return;
  } catch (error) {
    if (!hasCode(error, 'ENOENT')) throw error;
    throw new FairleadError('catatonit, the pause process of pods, is not installed', {
      op: 'check programs',
      code: 'ENOENT',
      hint: fix,
      cause: error,
    });
  }
  const version = await installedVersion();
  throw new FairleadError(
    `catatonit${version} is too old to be the pause process of pods: it lacks the option -P`,
    {
      op: 'check programs',
      code: 'ENOSYS',
      hint: fix,
    },
  );
}

/** Returns the version with a space before it, or nothing: "tini version 0.1.5_catatonit" is Debian 11's answer. */
async function installedVersion(): Promise<string> {
  const { stdout } = await runCommand('catatonit', ['--version'], { timeoutMs: HELP_TIMEOUT_MS });
  const [found] = /\b\d{1,4}(\.\d{1,4}){1,2}/.exec(stdout) ?? [];
  return found === undefined ? '' : ` ${found}`;
}

import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

/** The variable of every process in the namespaces of an ordinary user. */
export const ROOTLESS = 'FAIRLEAD_ROOTLESS';

/** Reports whether this process runs in the namespaces that an ordinary user's first `up` has made, as their root. */
export const isRootless = (environment: Environment = process.env): boolean => environment[ROOTLESS] === '1';

/** Returns the folder of an ordinary user's clusters, by the XDG Base Directory Specification. */
export function userStateRoot({ XDG_STATE_HOME: state }: Environment = process.env): string {
  // The specification ignores relative paths.
  return join(state && isAbsolute(state) ? state : join(homedir(), '.local', 'state'), 'fairlead');
}

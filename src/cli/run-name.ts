import { randomBytes } from 'node:crypto';
import { checkClusterName, listClusters } from '../cluster/state.ts';
import { FairleadError } from '../lib/errors.ts';

/** Returns the name of a run's new cluster: the given one, or one of its own. */
export const runName = (given: string | null): string =>
  checkClusterName(given ?? `run-${randomBytes(4).toString('hex')}`);

/** Throws FairleadError if the cluster exists: that of a run is removed at its end, and must not be one that the user has. */
export function refuseExisting(name: string): void {
  if (!listClusters().includes(name)) return;
  throw new FairleadError(`cluster ${name} exists, and would be removed at the end of this run`, {
    op: 'fairlead run',
    code: 'EEXIST',
    hint: `omit --name, or remove it first: fairlead down --name ${name}`,
  });
}

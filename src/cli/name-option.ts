import { usualCluster } from '../cluster/state.ts';
import { text } from './options.ts';

/** The option of every command that works on one cluster. */
export const NAME_OPTION = text('NAME', 'the cluster', {
  fallback: 'default',
  shownFallback: '$FAIRLEAD_CLUSTER, or the only cluster',
  derive: () => usualCluster(process.env),
});

import type { ClusterState } from './state.ts';

/** Returns the name of the cluster in certificates and kubeconfigs. */
export const authorityName = (state: Pick<ClusterState, 'name'>) => `fairlead-${state.name}`;

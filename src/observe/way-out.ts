/** The fix for a node without a route out of the cluster. */
export const WAY_OUT =
  'a cluster of "fairlead up" reaches external networks if it was started with --egress: fairlead down, then up --egress';

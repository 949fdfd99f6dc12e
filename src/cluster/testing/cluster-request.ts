import type { ClusterRequest } from '../plan.ts';

/** A request for a cluster with the defaults of `up`, and three nodes. */
export const CLUSTER_REQUEST: ClusterRequest = {
  name: 'default',
  nodes: 3,
  mode: 'nftables',
  ipFamily: 'ipv4',
  overlay: 'routes',
  authorization: 'RBAC',
  podCidr: null,
  serviceCidr: null,
  lbPool: null,
  apiPort: 6443,
  hostAccess: 'none',
  maxPods: 250,
  egress: false,
  publishedPorts: [],
  realControlPlane: null,
  proxy: { masqueradeAll: false, localDetection: true },
};

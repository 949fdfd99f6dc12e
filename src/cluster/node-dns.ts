/** The Service of cluster DNS: the nodes themselves answer on its address. */
export const NODE_DNS = 'fairlead-node-dns';

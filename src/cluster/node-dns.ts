/** Names the program that implements a Service instead of the default proxy (upstream's label). */
export const PROXY_NAME_LABEL = 'service.kubernetes.io/service-proxy-name';
/** The Service of cluster DNS: the nodes themselves answer on its address. */
export const NODE_DNS = 'fairlead-node-dns';

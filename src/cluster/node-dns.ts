/** Names the program that implements a Service instead of the usual proxy (upstream's label). */
export const PROXY_NAME_LABEL = 'service.kubernetes.io/service-proxy-name';
/** The Service of cluster DNS: nodes answer on its address themselves. */
export const NODE_DNS = 'fairlead-node-dns';

/** Says which program carries a Service, where that is not the usual one (upstream's label). */
export const PROXY_NAME_LABEL = 'service.kubernetes.io/service-proxy-name';
/** The cluster's DNS: nodes answer its address themselves. */
export const NODE_DNS = 'fairlead-node-dns';

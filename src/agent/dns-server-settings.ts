/** The port of /healthz and /livez of `dns-server`. */
export const DNS_SERVER_HEALTH_PORT = 8080;
/**
 * How long `dns-server` answers after it has been told to end, in seconds: rules of nodes whose agents are replaced in
 * the same roll-out still send queries to it.
 */
export const DNS_SERVER_LINGER_S = 30;

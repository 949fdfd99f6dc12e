/** Headers of one connection (RFC 9110, section 7.6.1), and the client's credentials for this server. */
const CONNECTION_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'authorization',
]);
/** Headers that a server accepts only from a front proxy: a client cannot send it through this server. */
const IDENTITY_PREFIXES = ['impersonate-', 'x-remote-'];

/** True for headers that are between two neighbours: neither requests nor answers are passed on with them. */
export const isConnectionHeader = (name: string): boolean => CONNECTION_HEADERS.has(name);

/**
 * The headers with which a client's request is passed on to a node, a pod, a Service or another API server: without
 * those of the connection, the credentials, and every claim of who the user is.
 */
export function forwardedHeaders(
  headers: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const result: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(':') || name === 'host' || isConnectionHeader(name)) continue;
    if (IDENTITY_PREFIXES.some((prefix) => name.startsWith(prefix))) continue;
    result[name] = value;
  }
  return result;
}

/** As `forwardedHeaders`, with the change of protocol that the client asks for. */
export function upgradeHeaders(
  headers: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  return {
    ...forwardedHeaders(headers),
    connection: headers['connection'] ?? 'Upgrade',
    upgrade: headers['upgrade'] ?? '',
  };
}

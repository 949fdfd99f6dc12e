/** Headers that apply to one connection (RFC 9110, section 7.6.1), and the client's credentials for this server. */
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
  // RFC 7540, 3.2.1
  'http2-settings',
]);
/** Headers that a server accepts from a front proxy only: a client must not send them through this server. */
const IDENTITY_PREFIXES = ['impersonate-', 'x-remote-'];

/** Reports whether a header applies to one connection: it is forwarded neither with requests nor with responses. */
export const isConnectionHeader = (name: string): boolean => CONNECTION_HEADERS.has(name);

/**
 * Returns the headers of a client's request for forwarding to a node, a pod, a Service or another API server: without
 * connection headers, credentials and all headers that identify the user.
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

/** Like `forwardedHeaders`, with the protocol upgrade that the client requests. */
export function upgradeHeaders(
  headers: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  return {
    ...forwardedHeaders(headers),
    connection: headers['connection'] ?? 'Upgrade',
    upgrade: headers['upgrade'] ?? '',
  };
}

import { createHash, timingSafeEqual } from 'node:crypto';

/** The parts of a request that decide whether it is answered. */
export interface GuardedRequest {
  readonly method: string;
  /** As sent by the client: "/TOKEN/api/events". */
  readonly url: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  /** It asks for a WebSocket, which browsers open to any site: only the Origin header shows whose page asks. */
  readonly isUpgrade: boolean;
}

export type Admission =
  | { readonly isAdmitted: true; readonly path: string; readonly query: URLSearchParams }
  | { readonly isAdmitted: false; readonly status: 400 | 403 | 405 | 421; readonly reason: string };

const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'DELETE']);
/** This machine's loopback, at any port: behind a tunnel of SSH the browser knows another port than the server. */
const LOOPBACK = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?$/;

/**
 * Decides on a request to the page's server. The token is the first segment of the path: cookies would be sent to every port
 * of this machine's loopback (RFC 6265, section 8.5), and a fragment would leave the page's files without protection. The
 * Host header must name loopback, so that the name of another site that resolves to it (DNS rebinding) is refused. An Origin
 * header must name the same host and port: the pages of other servers on loopback have others.
 */
export function admit(request: GuardedRequest, token: string): Admission {
  const { method, url, host, origin, isUpgrade } = request;
  if (host === undefined || !isLoopback(host.toLowerCase()))
    return refuse(
      421,
      'the Host header names another server: open the page by localhost or 127.0.0.1, from elsewhere through a tunnel (ssh -L)',
    );
  if (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`)
    return refuse(403, 'requests of other sites are refused');
  if (isUpgrade && origin === undefined)
    return refuse(403, 'a WebSocket needs the Origin header of this page');
  if (!METHODS.has(method)) return refuse(405, 'the method is not supported');
  const [, given = '', rest = ''] = /^\/([^/?#]*)([^#]*)$/.exec(url) ?? [];
  if (!isEqual(given, token))
    return refuse(403, 'the token is missing or wrong: open the address that "fairlead ui" has printed');
  let parsed: URL;
  try {
    parsed = new URL(`http://page${rest === '' ? '/' : rest}`);
  } catch {
    return refuse(400, 'the address is malformed');
  }
  return { isAdmitted: true, path: parsed.pathname, query: parsed.searchParams };
}

const refuse = (status: 400 | 403 | 405 | 421, reason: string): Admission => ({
  isAdmitted: false,
  status,
  reason,
});

function isLoopback(host: string): boolean {
  const [found, port = '80'] = LOOPBACK.exec(host) ?? [];
  return found === host && Number(port) > 0 && Number(port) < 1 << 16;
}

/** Compares in a time that does not depend on how much is equal. */
function isEqual(given: string, wanted: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}

/**
 * The headers of every answer: no other site is asked for anything, none can embed or read the page, and nothing is stored.
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
};

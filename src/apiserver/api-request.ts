import type { Readable } from 'node:stream';

/** Who sent a request, as authentication found. */
export interface User {
  readonly name: string;
  readonly uid?: string;
  readonly groups: readonly string[];
}

/** A request, whatever carried it. */
export interface IncomingRequest {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
  readonly user: User;
  /** From this very process. */
  readonly internal?: boolean;
  /** Aborts when the client has gone. */
  readonly signal: AbortSignal;
}

export interface OutgoingResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | Readable;
}

/** The parts of a path below /api or /apis. */
export interface ApiPath {
  readonly group: string;
  readonly version: string;
  readonly namespace: string;
  readonly plural: string;
  readonly name: string;
  readonly subresource: string;
}

/**
 * Splits a path such as /apis/apps/v1/namespaces/default/deployments/web/scale. Null when it names no resource.
 * /api/v1/namespaces/NAME/status and /finalize are the namespace's own subresources.
 */
export function parseApiPath(path: string): ApiPath | null {
  const parts: string[] = [];
  try {
    for (const part of path.split('/')) if (part !== '') parts.push(decodeURIComponent(part));
  } catch {
    // A malformed escape names nothing.
    return null;
  }
  const root = parts.shift();
  if (root !== 'api' && root !== 'apis') return null;
  const group = root === 'api' ? '' : parts.shift();
  const version = parts.shift();
  if (group === undefined || version === undefined || parts.length === 0) return null;
  let namespace = '';
  const ownSubresource = parts.length === 3 && (parts[2] === 'status' || parts[2] === 'finalize');
  if (parts[0] === 'namespaces' && parts.length > 2 && !ownSubresource) {
    namespace = parts[1] ?? '';
    parts.splice(0, 2);
  }
  const [plural = '', name = '', ...rest] = parts;
  return { group, version, namespace, plural, name, subresource: rest.join('/') };
}

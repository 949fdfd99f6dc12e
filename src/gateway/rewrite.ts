import type { PathMatch, PathRewrite } from './route-map.ts';

/** Returns the path that a rewrite makes of a request's. `groups`: what the row's regular expression captured. */
export function rewritePath(
  rewrite: PathRewrite | null,
  path: string,
  match: PathMatch,
  groups: readonly (string | undefined)[] | null,
): string {
  if (rewrite === null) return path;
  switch (rewrite.kind) {
    case 'full':
      return rewrite.path === '' ? '/' : rewrite.path;
    case 'prefix':
      return replacePrefix(path, match.kind === 'prefix' ? match.path : path, rewrite.path);
    case 'captures': {
      const made = rewrite.path.replace(/\$([1-9])/g, (_, group: string) => groups?.[Number(group)] ?? '');
      return made.startsWith('/') ? made : `/${made}`;
    }
  }
}

/**
 * Replaces a prefix by another, as the table at HTTPPathModifier.replacePrefixMatch says: there is one "/" between the new
 * prefix and the rest, and the result is never empty.
 */
function replacePrefix(path: string, prefix: string, replacement: string): string {
  const rest = prefix === '/' ? path : path.slice(prefix.length);
  const made = `${replacement.endsWith('/') ? replacement.slice(0, -1) : replacement}${rest}`;
  return made === '' ? '/' : made;
}

const STANDARD_PORT = { http: 80, https: 443 } as const;

export interface RedirectPlace {
  readonly secure: boolean;
  readonly host: string;
  /** Port of the listener. */
  readonly port: number;
  readonly path: string;
  /** With its "?", or "". */
  readonly query: string;
}

/** Returns the Location of a redirect. */
export function locationOf(
  action: {
    readonly scheme: 'http' | 'https' | null;
    readonly host: string | null;
    readonly port: number | null;
  },
  { secure, host, port, path, query }: RedirectPlace,
): string {
  const scheme = action.scheme ?? (secure ? 'https' : 'http');
  const target = action.port ?? (action.scheme === null ? port : STANDARD_PORT[action.scheme]);
  const shown = target === STANDARD_PORT[scheme] ? '' : `:${target}`;
  return `${scheme}://${action.host ?? host}${shown}${path}${query}`;
}

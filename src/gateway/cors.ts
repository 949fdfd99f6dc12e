import type { Cors, HeaderValue } from './route-map.ts';

/** Reports whether an origin may read answers. Origins are compared without case; "*." stands for one or more labels. */
export function originAllowed({ origins }: Cors, origin: string): boolean {
  const given = plainOrigin(origin);
  return origins.some((pattern) => pattern === '*' || originMatches(plainOrigin(pattern), given));
}

/** Returns an origin in lower case without the port that its scheme has anyway. */
function plainOrigin(origin: string): string {
  const lower = origin.toLowerCase();
  return lower.startsWith('http:') ? lower.replace(/:80$/, '') : lower.replace(/:443$/, '');
}

function originMatches(pattern: string, origin: string): boolean {
  const star = pattern.indexOf('*');
  if (star < 0) return pattern === origin;
  const before = pattern.slice(0, star);
  const after = pattern.slice(star + 1);
  if (!origin.startsWith(before) || !origin.endsWith(after)) return false;
  const middle = origin.slice(before.length, origin.length - after.length);
  return origin.length > before.length + after.length && /^[a-z0-9.-]+$/.test(middle);
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/** Returns the headers that an answer to a request of this origin has; none if the origin may not read it. */
export function corsHeaders(cors: Cors, origin: string): readonly HeaderValue[] {
  if (!originAllowed(cors, origin)) return [];
  const headers: HeaderValue[] = [originHeader(cors, origin)];
  if (cors.credentials) headers.push({ name: 'access-control-allow-credentials', value: 'true' });
  if (cors.exposed.length > 0)
    headers.push({ name: 'access-control-expose-headers', value: cors.exposed.join(', ') });
  return headers;
}

/** With credentials browsers do not accept "*": the origin itself is answered. */
function originHeader({ origins, credentials }: Cors, origin: string): HeaderValue {
  const every = origins.includes('*') && !credentials;
  return { name: 'access-control-allow-origin', value: every ? '*' : origin };
}

/** Returns the headers of the answer to a preflight; none if the origin is not allowed: browsers then stop. */
export function preflightHeaders(
  cors: Cors,
  origin: string,
  method: string,
  requested: string | null,
): readonly HeaderValue[] {
  if (!originAllowed(cors, origin)) return [];
  const every = (list: readonly string[]) => list.includes('*');
  const headers: HeaderValue[] = [originHeader(cors, origin)];
  if (cors.credentials) headers.push({ name: 'access-control-allow-credentials', value: 'true' });
  const methods = every(cors.methods) ? (cors.credentials ? method : '*') : cors.methods.join(', ');
  if (methods !== '') headers.push({ name: 'access-control-allow-methods', value: methods });
  const names = every(cors.headers) ? (cors.credentials ? (requested ?? '') : '*') : cors.headers.join(', ');
  if (names !== '') headers.push({ name: 'access-control-allow-headers', value: names });
  if (cors.exposed.length > 0)
    headers.push({ name: 'access-control-expose-headers', value: cors.exposed.join(', ') });
  headers.push({ name: 'access-control-max-age', value: String(cors.maxAge) });
  return headers;
}

export const isPreflight = (method: string, header: (name: string) => readonly string[]): boolean =>
  same(method, 'OPTIONS') &&
  header('origin').length > 0 &&
  header('access-control-request-method').length > 0;

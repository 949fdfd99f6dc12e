import type { HeldCertificate } from './certificate-store.ts';

/** The purpose that a certificate must have. */
export interface CertificateTerms {
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** DNS names and addresses of a server, in their shortest form, sorted. */
  readonly names: readonly string[];
}

/** When to request a certificate, and why. */
export interface Renewal {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly reason: 'missing' | 'expired' | 'subject' | 'names' | 'age';
}

/**
 * Decides when to request a certificate: at once without one or if it does not fit, otherwise at 70 to 90 % of its life, as
 * client-go's certificate manager. `share` spreads the nodes over this time (0 ≤ n < 1).
 */
export function renewalOf(
  held: Omit<HeldCertificate, 'cert' | 'key'> | null,
  wanted: CertificateTerms,
  share: number,
  now: number,
): Renewal {
  if (held === null) return { at: now, reason: 'missing' };
  if (held.until <= now) return { at: now, reason: 'expired' };
  const isSubject = held.commonName === wanted.commonName && isSame(held.organizations, wanted.organizations);
  if (!isSubject) return { at: now, reason: 'subject' };
  if (!isSame(held.names, wanted.names)) return { at: now, reason: 'names' };
  return { at: held.from + (held.until - held.from) * (0.7 + 0.2 * share), reason: 'age' };
}

const isSame = (a: readonly string[], b: readonly string[]) => JSON.stringify(a) === JSON.stringify(b);

const FIRST_BACKOFF_MS = 2000;
const MAX_BACKOFF_MS = 15 * 60_000;

/** Returns the time until the next request after failures, so that refused nodes do not fill the API server. */
export function backoffMs(failures: number, share: number): number {
  return Math.min(FIRST_BACKOFF_MS * 2 ** (failures - 1), MAX_BACKOFF_MS) * (1 + share / 10);
}

import { X509Certificate } from 'node:crypto';
import { record } from './raw.ts';

const BLOCK = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;
const LONGEST_BUNDLE = 512 * 1024;
const MAX_CERTIFICATES = 512;

/** The authorities of a ConfigMap or Secret as one PEM text, or why it has none. */
export type AuthorityResult =
  | { readonly pem: string; readonly problem: null }
  | { readonly pem: null; readonly problem: string };

/** Reads `ca.crt` of a ConfigMap (text) or of a Secret (base64): certificates only, written again. */
export function readAuthority(kind: 'ConfigMap' | 'Secret', data: unknown): AuthorityResult {
  const refuse = (problem: string): AuthorityResult => ({ pem: null, problem });
  const value = record(data)['ca.crt'];
  if (typeof value !== 'string' || value === '') return refuse('has no ca.crt');
  if (value.length > LONGEST_BUNDLE) return refuse(`has more than ${LONGEST_BUNDLE} bytes in ca.crt`);
  const pem = kind === 'Secret' ? Buffer.from(value, 'base64').toString('latin1') : value;
  const blocks = pem.match(BLOCK);
  if (!blocks) return refuse('has no PEM certificate in ca.crt');
  if (blocks.length > MAX_CERTIFICATES)
    return refuse(`has more than ${MAX_CERTIFICATES} certificates in ca.crt`);
  try {
    return {
      pem: `${blocks.map((block) => new X509Certificate(block).toString().trim()).join('\n')}\n`,
      problem: null,
    };
  } catch {
    return refuse('has a certificate in ca.crt that cannot be read');
  }
}

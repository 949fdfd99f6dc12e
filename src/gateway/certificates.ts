import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Secret } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { text } from './raw.ts';

/** A certificate with its key as one PEM text, or why a Secret has none. */
export type CertificateResult =
  | { readonly pem: string; readonly problem: null }
  | { readonly pem: null; readonly problem: string };

/** A Secret has at most 1 MiB; certificates with their authorities are much smaller. */
const MAX_PEM = 256 * 1024;

/** Reads the certificate of a Secret of type kubernetes.io/tls: its key must belong to it. */
export function readCertificate(secret: Secret): CertificateResult {
  const refuse = (problem: string): CertificateResult => ({ pem: null, problem });
  const data = (secret.data ?? {}) as Record<string, unknown>;
  const decode = (name: string) => Buffer.from(text(data[name]), 'base64').toString();
  const [certificate, key] = [decode('tls.crt'), decode('tls.key')];
  if (certificate === '' || key === '') return refuse('lacks tls.crt or tls.key');
  if (certificate.length + key.length > MAX_PEM) return refuse(`has more than ${MAX_PEM} bytes`);
  try {
    const blocks = certificate.match(
      /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g,
    );
    if (!blocks) return refuse('has no PEM certificate in tls.crt');
    const parsed = blocks.map((block) => new X509Certificate(block));
    const privateKey = createPrivateKey(key);
    if (parsed[0]?.checkPrivateKey(privateKey) !== true)
      return refuse('has a key in tls.key that does not belong to the certificate in tls.crt');
    // As in HAProxy, which refuses its whole configuration if OpenSSL refuses a key of one certificate as too small.
    createSecureContext({
      cert: parsed.map(String).join('\n'),
      key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      ciphers: 'DEFAULT@SECLEVEL=2',
    });
    // Written again: nothing else of the Secret gets into the file.
    return {
      pem: [
        ...parsed.map((one) => one.toString().trim()),
        privateKey.export({ type: 'pkcs8', format: 'pem' }),
      ].join('\n'),
      problem: null,
    };
  } catch (error) {
    return refuse(`cannot be read: ${messageOf(error)}`);
  }
}

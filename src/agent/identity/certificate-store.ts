import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { readOptionalFile } from '../../kernel/optional-file.ts';
import { replaceFile } from '../../kernel/replace-file.ts';
import { canonicalAddress } from '../../lib/address.ts';
import { certificatesOf } from '../../lib/der.ts';
import type { KeyedCertificate } from '../../lib/pki.ts';

/** A certificate of this node with what the decision about its renewal depends on. */
export interface HeldCertificate extends KeyedCertificate {
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** DNS names and addresses of a server, sorted. */
  readonly names: readonly string[];
  /** Milliseconds since 1970. */
  readonly from: number;
  readonly until: number;
}

/** A file with a certificate and its key, as the kubelet writes it; only root may read it. */
export interface CertificateStore {
  readonly file: string;
  /** Returns the certificate; null: there is none, or the file is damaged. */
  read(): HeldCertificate | null;
  write(pair: KeyedCertificate): void;
}

export function certificateStore(file: string): CertificateStore {
  return {
    file,
    read() {
      const text = readOptionalFile(file);
      return text === null ? null : readPair(text, text);
    },
    write({ cert, key }) {
      mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
      replaceFile(file, `${cert.trimEnd()}\n${key.trimEnd()}\n`, 0o600);
    },
  };
}

/** Reads a certificate and its key from PEM texts with other blocks; null: one is missing, or they are not a pair. */
export function readPair(certText: string, keyText: string): HeldCertificate | null {
  const certs = certificatesOf(certText);
  const key = /-----BEGIN ([A-Z ]*)PRIVATE KEY-----[^-]+-----END \1PRIVATE KEY-----\n?/.exec(keyText)?.[0];
  const [first] = certs;
  if (first === undefined || key === undefined) return null;
  try {
    const certificate = new X509Certificate(first);
    if (!certificate.checkPrivateKey(createPrivateKey(key))) return null;
    const { CN, O } = certificate.toLegacyObject().subject as unknown as Record<string, string | string[]>;
    return {
      cert: certs.join(''),
      key,
      commonName: [CN ?? []].flat()[0] ?? '',
      organizations: [O ?? []].flat(),
      names: serverNames(certificate),
      from: Date.parse(certificate.validFrom),
      until: Date.parse(certificate.validTo),
    };
  } catch {
    // Not what this program wrote: as if there were none.
    return null;
  }
}

function serverNames({ subjectAltName }: X509Certificate): string[] {
  const names = (subjectAltName ?? '').split(', ').flatMap((entry) => {
    const [, kind, value = ''] = /^(DNS|IP Address):(.*)$/.exec(entry) ?? [];
    if (kind === undefined) return [];
    return kind === 'DNS' ? [value] : [canonicalName(value)];
  });
  return names.sort();
}

/** Returns an address in its canonical form; another name unchanged. */
export const canonicalName = (name: string): string => canonicalAddress(name) ?? name;

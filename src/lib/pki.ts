import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto';
import type { ParsedCertificateRequest } from './certificate-request.ts';
import {
  alternativeName,
  bitString,
  boolean,
  type DistinguishedName,
  distinguishedName,
  extension,
  OID,
  objectIdentifier,
  octetString,
  pem,
  sequence,
  tagged,
} from './der.ts';

/** A certificate and its private key, PEM. */
export interface KeyedCertificate {
  readonly cert: string;
  readonly key: string;
}

/** An authority that signs certificates. */
export interface CertificateAuthority extends KeyedCertificate {
  issue(request: CertificateRequest): KeyedCertificate;
  /** Signs the public key of a request, with its subject and names; returns the certificate, PEM. */
  sign(request: ParsedCertificateRequest, terms: SigningTerms): string;
}

/** The permitted usage and the validity of a signed request. */
export interface SigningTerms {
  /** The extension keyUsage (RFC 5280, section 4.2.1.3). */
  readonly keyUsage: readonly KeyUsage[];
  readonly extendedKeyUsage: readonly ('server auth' | 'client auth')[];
  /** Time of signing: the certificate is valid from five minutes earlier. */
  readonly from: Date;
  readonly seconds: number;
}

export type KeyUsage = 'digital signature' | 'key encipherment';

export interface CertificateRequest {
  readonly commonName: string;
  /** Groups, as Kubernetes interprets organizations. */
  readonly organizations?: readonly string[];
  /** DNS names and addresses of a server. */
  readonly names?: readonly string[];
  readonly usage: 'server' | 'client' | 'both';
}

const YEARS = 10;

/** Creates an authority: an ECDSA P-256 key and a self-signed certificate (RFC 5280). */
export function createAuthority(commonName: string, now: Date): CertificateAuthority {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const subject = { commonName };
  const cert = certificate(subject, subject, publicKey, privateKey, { now }, [
    extension(OID.basicConstraints, true, sequence(boolean(true))),
    extension(OID.keyUsage, true, bitString(Buffer.of(0x06), 1)),
    extension(OID.subjectKeyIdentifier, false, octetString(keyIdentifier(publicKey))),
  ]);
  return openAuthority(commonName, { cert, key: pemKey(privateKey) }, now);
}

/** Opens an authority that `createAuthority` made earlier under this name. */
export function openAuthority(
  commonName: string,
  { cert, key }: KeyedCertificate,
  now: Date,
): CertificateAuthority {
  const subject = { commonName };
  const privateKey = createPrivateKey(key);
  const keyId = keyIdentifier(createPublicKey(privateKey));
  return {
    cert,
    key,
    issue(request) {
      const pair = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const usages =
        request.usage === 'both'
          ? [OID.serverAuth, OID.clientAuth]
          : [request.usage === 'server' ? OID.serverAuth : OID.clientAuth];
      const names = (request.names ?? []).map(alternativeName);
      const issued = certificate(
        {
          commonName: request.commonName,
          ...(request.organizations ? { organizations: request.organizations } : {}),
        },
        subject,
        pair.publicKey,
        privateKey,
        { now },
        [
          extension(OID.basicConstraints, true, sequence()),
          extension(OID.keyUsage, true, bitString(Buffer.of(0xa0), 5)),
          extension(OID.extKeyUsage, false, sequence(...usages.map(objectIdentifier))),
          extension(OID.authorityKeyIdentifier, false, sequence(tagged(0x80, keyId))),
          ...(names.length > 0 ? [extension(OID.subjectAltName, false, sequence(...names))] : []),
        ],
      );
      return { cert: issued, key: pemKey(pair.privateKey) };
    },
    sign(request, { keyUsage, extendedKeyUsage, from, seconds }) {
      const until = new Date(from.getTime() + seconds * 1000);
      const bits = keyUsage.reduce((all, usage) => all | (usage === 'digital signature' ? 0x80 : 0x20), 0);
      const purposes = extendedKeyUsage.map((usage) =>
        objectIdentifier(usage === 'server auth' ? OID.serverAuth : OID.clientAuth),
      );
      return certificate(
        request.subject,
        subject,
        request.publicKey,
        privateKey,
        { now: from, until, earlierMs: 300_000 },
        [
          ...(bits === 0
            ? []
            : [extension(OID.keyUsage, true, bitString(Buffer.of(bits), bits & 0x20 ? 5 : 7))]),
          ...(purposes.length === 0 ? [] : [extension(OID.extKeyUsage, false, sequence(...purposes))]),
          extension(OID.basicConstraints, true, sequence()),
          extension(OID.authorityKeyIdentifier, false, sequence(tagged(0x80, keyId))),
          ...(request.alternativeNames
            ? [extension(OID.subjectAltName, false, request.alternativeNames)]
            : []),
        ],
      );
    },
  };
}

const keyIdentifier = (publicKey: KeyObject) =>
  createHash('sha1')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest();

/** Creates an EC P-256 private key for signing tokens, PEM. */
export function createSigningKey(): string {
  return pemKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey);
}

/** Returns the public key of a private key, both PEM. */
export function publicKeyOf(privateKey: string): string {
  return createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }) as string;
}

/** Builds and signs a v3 certificate (RFC 5280, section 4.1). */
function certificate(
  subject: DistinguishedName | Buffer,
  issuer: DistinguishedName,
  publicKey: KeyObject | Buffer,
  issuerKey: KeyObject,
  validity: { readonly now: Date; readonly until?: Date; readonly earlierMs?: number },
  extensions: Buffer[],
): string {
  const { now } = validity;
  const algorithm = sequence(objectIdentifier(OID.ecdsaWithSha256));
  const serial = randomBytes(16);
  serial[0] = ((serial[0] ?? 0) & 0x7f) | 0x40;
  // Clocks differ: valid from an hour earlier by default.
  const from = new Date(now.getTime() - (validity.earlierMs ?? 3_600_000));
  const until = validity.until ?? yearsAfter(now, YEARS);
  const body = sequence(
    tagged(0xa0, tagged(0x02, Buffer.of(2))),
    tagged(0x02, serial),
    algorithm,
    distinguishedName(issuer),
    sequence(time(from), time(until)),
    Buffer.isBuffer(subject) ? subject : distinguishedName(subject),
    Buffer.isBuffer(publicKey) ? publicKey : publicKey.export({ type: 'spki', format: 'der' }),
    tagged(0xa3, sequence(...extensions)),
  );
  return pem('CERTIFICATE', sequence(body, algorithm, bitString(sign('sha256', body, issuerKey), 0)));
}

function yearsAfter(date: Date, years: number): Date {
  const later = new Date(date);
  later.setUTCFullYear(later.getUTCFullYear() + years);
  return later;
}

/** Encodes UTCTime until 2049, GeneralizedTime later (RFC 5280, section 4.1.2.5). */
function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/[-:T]/g, '').slice(0, 14);
  return date.getUTCFullYear() < 2050
    ? tagged(0x17, Buffer.from(`${digits.slice(2)}Z`, 'ascii'))
    : tagged(0x18, Buffer.from(`${digits}Z`, 'ascii'));
}

function pemKey(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }) as string;
}

import { addressBytes } from './address.ts';

/** A name of X.500 with the parts that Kubernetes reads. */
export interface DistinguishedName {
  readonly commonName: string;
  /** Groups, as Kubernetes interprets organizations. */
  readonly organizations?: readonly string[];
}

/** Object identifiers of certificates and requests for them. */
export const OID = {
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  extensionRequest: '1.2.840.113549.1.9.14',
  commonName: '2.5.4.3',
  organization: '2.5.4.10',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKeyIdentifier: '2.5.29.35',
  extKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
  clientAuth: '1.3.6.1.5.5.7.3.2',
} as const;

/** Encodes tag, length and value by the distinguished encoding rules (ITU-T X.690). */
export function tagged(tag: number, value: Buffer): Buffer {
  const { length } = value;
  if (length < 0x80) return Buffer.concat([Buffer.of(tag, length), value]);
  const bytes = length < 0x100 ? [length] : [length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, 0x80 | bytes.length, ...bytes), value]);
}

export const sequence = (...parts: Buffer[]) => tagged(0x30, Buffer.concat(parts));
export const boolean = (value: boolean) => tagged(0x01, Buffer.of(value ? 0xff : 0));
export const octetString = (value: Buffer) => tagged(0x04, value);
export const bitString = (value: Buffer, unused: number) =>
  tagged(0x03, Buffer.concat([Buffer.of(unused), value]));

export function objectIdentifier(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split('.').map(Number);
  const bytes = [first * 40 + second];
  for (const number of rest) {
    const groups = [number & 0x7f];
    for (let left = number >> 7; left > 0; left >>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return tagged(0x06, Buffer.from(bytes));
}

/** Encodes a name: the organizations, then the common name. */
export function distinguishedName(subject: DistinguishedName): Buffer {
  const part = (oid: string, text: string) =>
    tagged(0x31, sequence(objectIdentifier(oid), tagged(0x0c, Buffer.from(text, 'utf8'))));
  return sequence(
    ...(subject.organizations ?? []).map((text) => part(OID.organization, text)),
    part(OID.commonName, subject.commonName),
  );
}

/** Encodes an extension of a certificate (RFC 5280, section 4.2). */
export function extension(oid: string, critical: boolean, value: Buffer): Buffer {
  return sequence(objectIdentifier(oid), ...(critical ? [boolean(true)] : []), octetString(value));
}

/** Encodes a DNS name or an address of a server, for the extension subjectAltName. */
export function alternativeName(name: string): Buffer {
  const address = addressBytes(name);
  return address ? tagged(0x87, Buffer.from(address)) : tagged(0x82, Buffer.from(name, 'ascii'));
}

/** Renders a structure as PEM (RFC 7468). */
export function pem(label: string, der: Buffer): string {
  const base64 = der.toString('base64').replace(/.{64}/g, '$&\n').trimEnd();
  return `-----BEGIN ${label}-----\n${base64}\n-----END ${label}-----\n`;
}

/** Returns the certificates in a text, each as PEM; other blocks and comments are left out. */
export function certificatesOf(text: string): string[] {
  return text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?/g) ?? [];
}

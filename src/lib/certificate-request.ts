import { createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';
import { formatAddress } from './address.ts';
import {
  alternativeName,
  bitString,
  type DistinguishedName,
  distinguishedName,
  extension,
  OID,
  objectIdentifier,
  pem as pemText,
  sequence,
  tagged,
} from './der.ts';
import { FairleadError } from './errors.ts';

/** A request for a certificate (PKCS #10, RFC 2986) whose signature was checked. */
export interface ParsedCertificateRequest {
  /** The subject's name, DER. */
  readonly subject: Buffer;
  readonly commonName: string;
  readonly organizations: readonly string[];
  /** The key, DER (SubjectPublicKeyInfo). */
  readonly publicKey: Buffer;
  /** The value of the extension subjectAltName, DER; null without one. */
  readonly alternativeNames: Buffer | null;
  readonly dnsNames: readonly string[];
  readonly addresses: readonly string[];
  /** Mail addresses and URIs. */
  readonly otherNames: readonly string[];
}

const malformed = (message: string): FairleadError =>
  new FairleadError(message, { op: 'parse certificate request', code: 'EINVAL' });

const OID_COMMON_NAME = '550403';
const OID_ORGANIZATION = '55040a';
const OID_EXTENSION_REQUEST = '2a864886f70d01090e';
const OID_SUBJECT_ALT_NAME = '551d11';
/**
 * Hash functions of signature algorithms by their object identifiers; null: the algorithm includes one
 * (Ed25519).
 */
const HASHES: Readonly<Record<string, string | null>> = {
  '2a864886f70d010105': 'sha1',
  '2a864886f70d01010b': 'sha256',
  '2a864886f70d01010c': 'sha384',
  '2a864886f70d01010d': 'sha512',
  '2a8648ce3d040302': 'sha256',
  '2a8648ce3d040303': 'sha384',
  '2a8648ce3d040304': 'sha512',
  '2b6570': null,
};

/** The subject and the names that a request asks for. */
export interface CertificateRequestTerms extends DistinguishedName {
  /** DNS names and addresses of a server. */
  readonly names: readonly string[];
}

/** Creates a request for a certificate of an EC P-256 key (PEM): PEM. */
export function createCertificateRequest(
  { names, ...subject }: CertificateRequestTerms,
  privateKey: string,
): string {
  const key = createPrivateKey(privateKey);
  const wanted = sequence(
    ...(names.length === 0
      ? []
      : [extension(OID.subjectAltName, false, sequence(...names.map(alternativeName)))]),
  );
  const attribute = sequence(objectIdentifier(OID.extensionRequest), tagged(0x31, wanted));
  const info = sequence(
    tagged(0x02, Buffer.of(0)),
    distinguishedName(subject),
    createPublicKey(key).export({ type: 'spki', format: 'der' }),
    tagged(0xa0, names.length === 0 ? Buffer.alloc(0) : attribute),
  );
  const algorithm = sequence(objectIdentifier(OID.ecdsaWithSha256));
  const request = sequence(info, algorithm, bitString(sign('sha256', info, key), 0));
  return pemText('CERTIFICATE REQUEST', request);
}

/** An element of DER: its tag, its content, and all its bytes. */
interface Element {
  readonly tag: number;
  readonly content: Buffer;
  readonly bytes: Buffer;
}

/**
 * Reads a PEM "CERTIFICATE REQUEST". Throws Error if it is malformed or its signature does not match its
 * key.
 */
export function parseCertificateRequest(pem: string): ParsedCertificateRequest {
  const block = /-----BEGIN (?:NEW )?CERTIFICATE REQUEST-----([\s\S]+?)-----END/.exec(pem);
  if (!block) throw malformed('PEM block type must be CERTIFICATE REQUEST');
  const [request] = elements(Buffer.from(block[1] ?? '', 'base64'));
  const [info, algorithm, signature] = children(request);
  const [, subject, publicKey, attributes] = children(info);
  if (!info || !subject || !publicKey || !signature) throw malformed('the certificate request is incomplete');
  const oid = hex(children(algorithm)[0]);
  if (!(oid in HASHES)) throw malformed(`unknown signature algorithm ${oid}`);
  const key = createPublicKey({ key: publicKey.bytes, format: 'der', type: 'spki' });
  if (!verify(HASHES[oid], info.bytes, key, signature.content.subarray(1)))
    throw malformed('the signature of the certificate request is not of its key');
  const names = alternativeNames(attributes);
  const ofNames = (tag: number) => children(names).filter((name) => name.tag === tag);
  const text = ({ content }: Element) => content.toString('utf8');
  return {
    subject: subject.bytes,
    commonName: nameParts(subject, OID_COMMON_NAME)[0] ?? '',
    organizations: nameParts(subject, OID_ORGANIZATION),
    publicKey: publicKey.bytes,
    alternativeNames: names?.bytes ?? null,
    dnsNames: ofNames(0x82).map(text),
    addresses: ofNames(0x87).map(({ content }) => formatAddress(content)),
    otherNames: [...ofNames(0x81), ...ofNames(0x86)].map(text),
  };
}

function nameParts(subject: Element, oid: string): string[] {
  return children(subject)
    .flatMap(children)
    .filter((part) => hex(children(part)[0]) === oid)
    .map((part) => children(part)[1]?.content.toString('utf8') ?? '');
}

/** Returns the list of names in the requested extension subjectAltName. */
function alternativeNames(attributes: Element | undefined): Element | undefined {
  for (const attribute of children(attributes)) {
    const [type, values] = children(attribute);
    if (hex(type) !== OID_EXTENSION_REQUEST) continue;
    for (const extension of children(children(values)[0])) {
      const parts = children(extension);
      if (hex(parts[0]) !== OID_SUBJECT_ALT_NAME) continue;
      return elements(parts[parts.length - 1]?.content ?? Buffer.alloc(0))[0];
    }
  }
  return undefined;
}

const hex = (element: Element | undefined): string => element?.content.toString('hex') ?? '';
const children = (element: Element | undefined): Element[] => (element ? elements(element.content) : []);

/** Splits DER (ITU-T X.690) into its elements. Throws Error if lengths are inconsistent. */
function elements(der: Buffer): Element[] {
  const found: Element[] = [];
  let at = 0;
  while (at < der.length) {
    const tag = der[at] ?? 0;
    let length = der[at + 1] ?? 0;
    let start = at + 2;
    if (length & 0x80) {
      const count = length & 0x7f;
      if (count === 0 || count > 4) throw malformed('malformed length in the certificate request');
      length = der.subarray(start, start + count).reduce((sum, byte) => sum * 256 + byte, 0);
      start += count;
    }
    const end = start + length;
    if (end > der.length) throw malformed('the certificate request is cut off');
    found.push({ tag, content: der.subarray(start, end), bytes: der.subarray(at, end) });
    at = end;
  }
  return found;
}

/** Record types that Fairlead reads or writes by name (IANA registry); all others travel as opaque bytes. */
export const TYPE = {
  A: 1,
  NS: 2,
  CNAME: 5,
  SOA: 6,
  PTR: 12,
  HINFO: 13,
  MX: 15,
  TXT: 16,
  AAAA: 28,
  SRV: 33,
  DNAME: 39,
  OPT: 41,
  IXFR: 251,
  AXFR: 252,
  ANY: 255,
} as const;

export const CLASS_IN = 1;

export const RCODE = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
  BADVERS: 16,
} as const;

const RCODE_NAMES: Readonly<Record<number, string>> = Object.fromEntries(
  Object.entries(RCODE).map(([name, value]) => [value, name]),
);
const TYPE_NAMES: Readonly<Record<number, string>> = {
  ...Object.fromEntries(Object.entries(TYPE).map(([name, value]) => [value, name])),
  43: 'DS',
  46: 'RRSIG',
  47: 'NSEC',
  48: 'DNSKEY',
  64: 'SVCB',
  65: 'HTTPS',
};

/** Returns "NXDOMAIN", or the number as text. */
export const rcodeName = (rcode: number): string => RCODE_NAMES[rcode] ?? String(rcode);

/** Returns "AAAA"; "other" for rare types, which bounds the number of metric series. */
export const typeName = (type: number): string => TYPE_NAMES[type] ?? 'other';

/**
 * A domain name as text: labels joined by dots, without the final dot, "" for the root. Bytes that are not
 * printable ASCII, and dots and backslashes inside a label, are escaped as in master files (RFC 1035, 5.1),
 * so that text and wire form correspond one to one and lower-casing the text touches letters only.
 */
export type Name = string;

export interface Question {
  readonly name: Name;
  readonly type: number;
  readonly class: number;
}

export interface ResourceRecord {
  readonly name: Name;
  readonly type: number;
  readonly class: number;
  /** Seconds. */
  readonly ttl: number;
  readonly data: RecordData;
}

/** Data with names is parsed, since names may be compressed; all other data is opaque bytes. */
export type RecordData =
  | Uint8Array
  | { readonly target: Name }
  | { readonly preference: number; readonly target: Name }
  | { readonly priority: number; readonly weight: number; readonly port: number; readonly target: Name }
  | SoaData;

export interface SoaData {
  readonly primary: Name;
  readonly mailbox: Name;
  readonly serial: number;
  readonly refresh: number;
  readonly retry: number;
  readonly expire: number;
  /** TTL of negative answers (RFC 2308). */
  readonly minimum: number;
}

/** EDNS(0), RFC 6891. */
export interface Edns {
  readonly udpSize: number;
  readonly version: number;
  readonly dnssecOk: boolean;
}

/** The fixed part of a message: the bits of the second and third byte by their names in RFC 1035. */
export interface Header {
  readonly id: number;
  readonly response: boolean;
  readonly opcode: number;
  readonly authoritative: boolean;
  readonly truncated: boolean;
  readonly recursionDesired: boolean;
  readonly recursionAvailable: boolean;
  readonly authenticData: boolean;
  readonly checkingDisabled: boolean;
  /** The four bits of the header; in a decoded message joined with the eight of EDNS. */
  readonly rcode: number;
}

export interface Message extends Header {
  readonly questions: readonly Question[];
  readonly answers: readonly ResourceRecord[];
  readonly authorities: readonly ResourceRecord[];
  /** Without the OPT record, which is `edns`. */
  readonly additionals: readonly ResourceRecord[];
  readonly edns: Edns | null;
}

/** The parts of a query that the server uses. */
export interface Query extends Header {
  readonly question: Question;
  readonly edns: Edns | null;
}

/** The variable part of a response, from the zone or an upstream. */
export interface Answer {
  readonly rcode: number;
  readonly authoritative: boolean;
  readonly authenticData: boolean;
  readonly answers: readonly ResourceRecord[];
  readonly authorities: readonly ResourceRecord[];
  readonly additionals: readonly ResourceRecord[];
}

const NONE: readonly ResourceRecord[] = [];

/** Returns an answer without records. */
export function emptyAnswer(rcode: number): Answer {
  return {
    rcode,
    authoritative: false,
    authenticData: false,
    answers: NONE,
    authorities: NONE,
    additionals: NONE,
  };
}

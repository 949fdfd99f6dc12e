/**
 * The annotation of a NetworkPolicy that isolates for egress: names that its pods may reach as well, such as
 * "api.example.com:443, *.example.org". A name without a port stands for all ports of all protocols.
 */
export const EGRESS_NAMES = 'fairlead.dev/egress-names';

/** Names of one annotation; further ones are refused. */
export const MAX_EGRESS_NAMES = 100;

export interface EgressName {
  /** In lower case, without the final dot: "api.example.com", "*.example.com". */
  readonly pattern: string;
  /** Null: all. */
  readonly ports: {
    readonly protocol: 'TCP' | 'UDP' | 'SCTP';
    readonly first: number;
    readonly last: number;
  } | null;
}

/** The pattern of DomainName in policy.networking.k8s.io, in lower case: at least two labels, "*" as the whole first label only. */
const PATTERN = /^(\*\.)?([a-z0-9]([-a-z0-9_]*[a-z0-9])?\.)+[a-z0-9]([-a-z0-9_]*[a-z0-9])?$/;
const ASCII = /^[\x21-\x7e]+$/;
/** RFC 1035, without the final dot. */
const MAX_NAME = 253;
const MAX_LABEL = 63;
const MAX_PORT = 65535;
const MAX_SHOWN = 80;
/** One that shows what is wrong; the others of an annotation are counted. */
const MAX_REFUSED = 10;

/** Returns a pattern in its canonical form; null: it is none. International names have to be in their form with "xn--". */
export function readNamePattern(text: string): string | null {
  // Some letters beyond ASCII have an ASCII letter as their lower case (the Kelvin sign).
  if (text.length > MAX_NAME + 1 || !ASCII.test(text)) return null;
  const pattern = text.toLowerCase().replace(/\.$/, '');
  const isValid =
    PATTERN.test(pattern) &&
    pattern.length <= MAX_NAME &&
    pattern.split('.').every((label) => label.length <= MAX_LABEL);
  return isValid ? pattern : null;
}

/** Reads the annotation. `refused`: parts that allow nothing, each with the reason. */
export function parseEgressNames(text: string): { readonly names: EgressName[]; readonly refused: string[] } {
  const parts = text.split(/[\s,]+/).filter((part) => part !== '');
  const names: EgressName[] = [];
  const refused: string[] = [];
  for (const part of parts.slice(0, MAX_EGRESS_NAMES)) {
    const [, name = '', first, last, protocol] =
      /^([^:/]*)(?::(\d{1,5})(?:-(\d{1,5}))?(?:\/([A-Z]+))?)?$/.exec(part) ?? [];
    const pattern = readNamePattern(name);
    const ports = first === undefined ? null : readPorts(first, last, protocol);
    if (pattern !== null && ports !== undefined) {
      names.push({ pattern, ports });
      continue;
    }
    const shown = part.length > MAX_SHOWN ? `${part.slice(0, MAX_SHOWN)}…` : part;
    refused.push(
      pattern === null
        ? `"${shown}" is not a name such as api.example.com, *.example.com or api.example.com:443, and allows nothing`
        : `"${shown}" has no port such as :443, :8000-8100 or :443/UDP, and allows nothing`,
    );
  }
  if (parts.length > MAX_EGRESS_NAMES)
    refused.push(`it has ${parts.length} names; only the first ${MAX_EGRESS_NAMES} are read`);
  return { names, refused };
}

interface AnnotatedPolicy {
  readonly metadata?: { readonly annotations?: Readonly<Record<string, string>> } | undefined;
  readonly spec?:
    | {
        readonly policyTypes?: readonly string[];
        readonly egress?: readonly {
          readonly ports?: readonly { readonly port?: number | string; readonly protocol?: string }[];
        }[];
      }
    | undefined;
}

/** Returns why the annotation of a NetworkPolicy, or a part of it, has no effect; empty: it has, or there is none. */
export function egressNamesProblems({ metadata, spec = {} }: AnnotatedPolicy): string[] {
  const text = metadata?.annotations?.[EGRESS_NAMES];
  if (text === undefined) return [];
  const { policyTypes = [], egress = [] } = spec;
  const isolates = policyTypes.length > 0 ? policyTypes.includes('Egress') : egress.length > 0;
  if (!isolates)
    return ['it has no effect: spec.policyTypes does not contain Egress, so that all names are allowed'];
  const { names, refused } = parseEgressNames(text);
  const problems = refused.slice(0, MAX_REFUSED);
  if (refused.length > MAX_REFUSED) problems.push(`and ${refused.length - MAX_REFUSED} more`);
  const allowsDns = egress.some(
    ({ ports }) =>
      ports === undefined ||
      ports.length === 0 ||
      ports.some(
        ({ port, protocol }) =>
          protocol === 'UDP' && (port === undefined || port === 53 || typeof port === 'string'),
      ),
  );
  if (names.length > 0 && !allowsDns)
    problems.push(
      'no rule of spec.egress allows port 53 over UDP: unless another policy does, the pods cannot ask for names',
    );
  return problems;
}

/** Undefined: malformed. */
function readPorts(
  first: string,
  last: string | undefined,
  protocol = 'TCP',
): EgressName['ports'] | undefined {
  const known = (['TCP', 'UDP', 'SCTP'] as const).find((one) => one === protocol);
  const [from, to] = [Number(first), Number(last ?? first)];
  if (!known || from === 0 || from > to || to > MAX_PORT) return undefined;
  return { protocol: known, first: from, last: to };
}

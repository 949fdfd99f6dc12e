import type { PolicyPort, PolicyRule, Protocol } from './model.ts';
import { nameGroup, readNamePattern } from './name-group.ts';

/**
 * The annotation of a NetworkPolicy that isolates for egress: names that its pods may reach as well, such as
 * "api.example.com:443, *.example.org". A name without a port stands for all ports of all protocols.
 */
export const EGRESS_NAMES = 'fairlead.dev/egress-names';

/** Names of one annotation; further ones are refused. */
export const MAX_EGRESS_NAMES = 100;
const MAX_PORT = 65535;
const MAX_SHOWN = 80;

export interface ReadEgressNames {
  /** One rule for the names of each port. */
  readonly rules: readonly PolicyRule[];
  /** Parts that allow nothing, each with the reason. */
  readonly refused: readonly string[];
}

/** Reads the annotation; what is malformed allows nothing. */
export function readEgressNames(text: string): ReadEgressNames {
  const parts = text.split(/[\s,]+/).filter((part) => part !== '');
  const refused: string[] = [];
  /** By the text of the ports, in the order of the annotation. */
  const names = new Map<string, { readonly ports: PolicyPort[] | null; readonly patterns: string[] }>();
  for (const part of parts.slice(0, MAX_EGRESS_NAMES)) {
    const [, name = '', first, last, protocol] =
      /^([^:/]*)(?::(\d{1,5})(?:-(\d{1,5}))?(?:\/([A-Z]+))?)?$/.exec(part) ?? [];
    const pattern = readNamePattern(name);
    const ports = first === undefined ? null : readPorts(first, last, protocol);
    if (pattern === null || ports === undefined) {
      const shown = part.length > MAX_SHOWN ? `${part.slice(0, MAX_SHOWN)}…` : part;
      refused.push(
        pattern === null
          ? `"${shown}" is not a name such as api.example.com, *.example.com or api.example.com:443`
          : `"${shown}" has no port such as :443, :8000-8100 or :443/UDP`,
      );
      continue;
    }
    const key = JSON.stringify(ports);
    const known = names.get(key) ?? { ports, patterns: [] };
    known.patterns.push(pattern);
    names.set(key, known);
  }
  if (parts.length > MAX_EGRESS_NAMES)
    refused.push(`it has ${parts.length} names; only the first ${MAX_EGRESS_NAMES} are read`);
  const rules = [...names.values()].map(
    ({ ports, patterns }): PolicyRule => ({
      action: 'Accept',
      peers: [{ kind: 'names', group: nameGroup(patterns) }],
      ports,
      field: `metadata.annotations[${EGRESS_NAMES}]`,
    }),
  );
  return { rules, refused };
}

/** Undefined: malformed. */
function readPorts(first: string, last: string | undefined, protocol = 'TCP'): PolicyPort[] | undefined {
  const known = (['TCP', 'UDP', 'SCTP'] as const satisfies readonly Protocol[]).find(
    (one) => one === protocol,
  );
  const [from, to] = [Number(first), Number(last ?? first)];
  if (!known || from === 0 || from > to || to > MAX_PORT) return undefined;
  return [{ kind: 'range', protocol: known, first: from, last: to }];
}

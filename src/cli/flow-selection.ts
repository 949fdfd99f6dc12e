import {
  type DnsLine,
  FLOW_LINE_KINDS,
  FLOW_VERDICTS,
  type FlowLine,
  type FlowVerdict,
} from '../flows/flow-line.ts';
import type { FlowNames } from './flow-names.ts';
import { suggestion, usageError } from './options.ts';

/** The options of "flows" that select entries. */
export interface FlowSelectionOptions {
  readonly service: string | null;
  readonly pod: string | null;
  readonly kind: string | null;
  readonly verdict: string | null;
}

/** Selects all verdicts but "delivered". */
const FAILED = 'failed';
export const VERDICT_WORDS: readonly string[] = [...FLOW_VERDICTS, FAILED];
/** Words of earlier versions. */
const EARLIER_WORDS: Readonly<Record<string, FlowVerdict>> = {
  answered: 'delivered',
  refused: 'rejected',
  unanswered: 'no-answer',
};

/** Returns whether an entry is shown. Throws FairleadError for a kind or verdict that does not exist. */
export function selectFlows(
  options: FlowSelectionOptions,
): (entry: FlowLine | DnsLine, node: string, names: FlowNames) => boolean {
  const kinds = wordsOf('--kind', options.kind, FLOW_LINE_KINDS);
  const verdicts = wordsOf('--verdict', options.verdict, VERDICT_WORDS);
  const service = qualified(options.service);
  const pod = qualified(options.pod);
  return (entry, node, names) => {
    const { kind, verdict, client } = entry;
    const endpoint = entry.type === 'flow' ? entry.endpoint : entry.server;
    const asked = entry.type === 'flow' ? entry.service : null;
    // The node of a client shows it; other nodes on its way see the same packets.
    const home = asked === null ? names.nodeOf(client.ip) : null;
    if (home !== null && home !== node && kind !== 'stalled') return false;
    if (kinds && !kinds.has(kind)) return false;
    if (
      verdicts &&
      !(verdict && (verdicts.has(verdict) || (verdicts.has(FAILED) && verdict !== 'delivered')))
    )
      return false;
    if (service && asked?.name?.replace(/:.*/, '') !== service) return false;
    return !pod || names.of(client.ip) === pod || (endpoint !== null && names.of(endpoint.ip) === pod);
  };
}

/** Reads "30s", "5m", "2h" before `now`, or an ISO time; returns ms since 1970. Throws FairleadError. */
export function readSince(text: string, now: number): number {
  const [, amount, unit] = /^(\d+)(s|m|h)$/.exec(text) ?? [];
  if (amount && unit) return now - Number(amount) * ({ s: 1000, m: 60_000, h: 3_600_000 }[unit] ?? 0);
  const time = Date.parse(text);
  if (!Number.isNaN(time)) return time;
  throw usageError(
    'flows',
    `--since takes a duration such as 30s, 5m or 2h, or a time, not ${JSON.stringify(text)}`,
  );
}

function wordsOf(option: string, text: string | null, known: readonly string[]): Set<string> | null {
  if (text === null || text === '') return null;
  const words = text.split(',').map((word) => {
    const typed = word.trim().toLowerCase().replaceAll(' ', '-');
    const earlier = Object.hasOwn(EARLIER_WORDS, typed) ? EARLIER_WORDS[typed] : undefined;
    return earlier !== undefined && known.includes(earlier) ? earlier : typed;
  });
  const wrong = words.find((word) => !known.includes(word));
  if (wrong === undefined) return new Set(words);
  throw usageError(
    'flows',
    `${option} takes ${known.join(', ')}, not ${JSON.stringify(wrong)}${suggestion(wrong, known)}`,
  );
}

/** Returns "namespace/name"; "svc/" and "pod/" before it are what other commands take. */
function qualified(text: string | null): string | null {
  const name = text?.replace(/^(?:svc|service|pod|po)\//, '') ?? '';
  if (name === '') return null;
  return name.includes('/') ? name : `default/${name}`;
}

/** Names of objects, "namespace/name". */
export interface KnownNames {
  readonly services: readonly string[];
  readonly pods: readonly string[];
}

/** Returns warnings about a Service or pod that does not exist now: their flows are shown once it does. */
export function missingNames(
  options: Pick<FlowSelectionOptions, 'service' | 'pod'>,
  { services, pods }: KnownNames,
): string[] {
  const missing = (kind: string, name: string | null, known: readonly string[]): string[] =>
    name === null || known.includes(name) ? [] : [`no such ${kind} now: ${name}${suggestion(name, known)}`];
  return [
    ...missing('Service', qualified(options.service), services),
    ...missing('pod', qualified(options.pod), pods),
  ];
}

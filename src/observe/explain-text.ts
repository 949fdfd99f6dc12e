import { hostPort } from '../lib/address.ts';
import type { Arrival, Cause, ExplainedEndpoint, ExplainVerdict, Explanation } from './explanation.ts';

export const MARK: Readonly<Record<ExplainVerdict, string>> = {
  delivered: 'DELIVERED',
  partial: 'PARTLY DELIVERED',
  rejected: 'REJECTED',
  dropped: 'DROPPED',
  unreachable: 'UNREACHABLE',
  unresolved: 'NOT SENT',
  unknown: 'UNKNOWN',
};

const ARRIVAL: Readonly<Record<Arrival, string>> = {
  answered: '',
  refused: 'rejected',
  'queue-full': 'its queue is full',
  waits: 'waits for the egress gateway',
  'no-host': 'no such host',
  'reply-lost': 'replies are lost',
  unreachable: 'no route',
  filtered: 'dropped by a rule of another program',
  'filtered-rejected': 'rejected by a rule of another program',
  denied: 'denied by policy',
  fault: 'dropped by a planted fault',
  unknown: 'not known',
};

export const SHORT_COLUMNS = 80;
export const SHORT_LINES = 8;
/** The maximum number of lines with endpoints in the short form. */
const SHORT_ENDPOINTS = 3;
const MAX_FIX_LINES = 3;

/**
 * Renders the verdict, the endpoints with their odds, the reason and the fix: at most SHORT_LINES lines of `columns`, for a
 * terminal. `columns` null: not a terminal, so that no line is wrapped or shortened.
 */
export function renderShort(explanation: Explanation, columns: number | null = SHORT_COLUMNS): string {
  const { from, to, packet, endpoints, verdict, reason, causes, clientSeen } = explanation;
  const target = packet
    ? ` (${hostPort({ ip: packet.destination, port: packet.port })}/${packet.protocol})`
    : '';
  const head = `${MARK[verdict]}: ${from} → ${to}${to.includes(packet?.destination ?? ' ') ? '' : target}`;
  const lines = [head];
  const shown = endpoints.length > SHORT_ENDPOINTS ? endpoints.slice(0, SHORT_ENDPOINTS - 1) : endpoints;
  const rows = shown.map((endpoint) => [
    hostPort({ ip: endpoint.address, port: endpoint.port }),
    `${(endpoint.odds * 100).toFixed(0)} %`,
    endpoint.pod ?? '-',
    [ARRIVAL[endpoint.arrival], seenText(endpoint, packet?.source)].filter(Boolean).join(', '),
  ]);
  lines.push(...aligned(rows).map((line) => `  ${line}`));
  if (shown.length < endpoints.length) lines.push(`  and ${endpoints.length - shown.length} more`);
  const [cause] = causes;
  const room = SHORT_LINES - lines.length;
  if (!cause) {
    if (verdict !== 'delivered' || endpoints.length === 0) lines.push(...wrapped('', reason, room, columns));
    if (
      verdict === 'delivered' &&
      endpoints.length === 0 &&
      clientSeen !== null &&
      clientSeen !== packet?.source
    ) {
      lines.push(`  the server sees ${clientSeen}`);
    }
  } else {
    const fix = cause.fix === null ? [] : wrapped('fix: ', fixText(cause), MAX_FIX_LINES, columns);
    lines.push(...wrapped('because ', cause.text, Math.max(1, room - fix.length), columns), ...fix);
  }
  return `${lines
    .slice(0, SHORT_LINES)
    .map((line) => cut(line, columns))
    .join('\n')}\n`;
}

/** Returns the fix and the object and field to change. */
export function fixText({ fix, object, field }: Cause): string {
  const at = [object, field !== null && !fix?.includes(field) ? field : null].filter((part) => part !== null);
  return at.length > 0 ? `${fix} (${at.join(' ')})` : `${fix}`;
}

function seenText({ clientSeen, arrival }: ExplainedEndpoint, source: string | undefined): string {
  return arrival === 'answered' && clientSeen !== null && clientSeen !== source ? `sees ${clientSeen}` : '';
}

/** Renders an explanation with all its steps for a terminal, without colours; ends with a line feed. */
export function renderExplanation(explanation: Explanation): string {
  const { from, to, packet, steps, endpoints, verdict, reason, causes, clientSeen } = explanation;
  const lines = [`${from} → ${to}`];
  if (packet) {
    const destination = hostPort({ ip: packet.destination, port: packet.port });
    lines.push(`  ${bracketed(packet.source)} → ${destination}/${packet.protocol}`);
  }
  lines.push('');
  for (const [i, { text, ruleOrKey }] of steps.entries()) {
    lines.push(`${String(i + 1).padStart(2)}. ${text}`);
    if (ruleOrKey) lines.push(`      ${ruleOrKey}`);
  }
  if (endpoints.length > 0) {
    const rows = endpoints.map((endpoint) => [
      hostPort({ ip: endpoint.address, port: endpoint.port }),
      `${(endpoint.odds * 100).toFixed(1)} %`,
      endpoint.pod ?? '-',
      endpoint.nextHop,
      [
        ARRIVAL[endpoint.arrival],
        endpoint.clientSeen === null ? '' : `sees ${endpoint.clientSeen}`,
        endpoint.hairpin ? 'hairpin' : endpoint.masquerade ? 'masquerade' : '',
        endpoint.terminating ? 'terminating' : '',
      ]
        .filter(Boolean)
        .join(', '),
    ]);
    lines.push('', ...aligned(rows).map((line) => `    ${line}`));
  }
  if (endpoints.length === 0 && verdict === 'delivered' && clientSeen !== null)
    lines.push('', `    the server sees ${clientSeen}`);
  lines.push('', `${MARK[verdict]}: ${reason}`, ...causes.flatMap(causeLines));
  return `${lines.join('\n')}\n`;
}

function causeLines({ text, object, field, fix }: Cause): string[] {
  const where = [object, field].filter((part) => part !== null).join(' ');
  return [`  because ${text}`, ...(where ? [`    at  ${where}`] : []), ...(fix ? [`    fix ${fix}`] : [])];
}

function bracketed(address: string): string {
  return address.includes(':') ? `[${address}]` : address;
}

/** Wraps a text to the width of a terminal, and truncates it after `max` lines. */
function wrapped(prefix: string, text: string, max: number, columns: number | null): string[] {
  if (columns === null) return [`  ${prefix}${text}`];
  const width = columns - 2 - prefix.length;
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last === undefined || last.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  const kept = lines.length > max ? [...lines.slice(0, max - 1), `${lines[max - 1]} …`] : lines;
  return kept.map((line, index) => `  ${index === 0 ? prefix : ' '.repeat(prefix.length)}${line}`);
}

function cut(line: string, columns: number | null): string {
  return columns !== null && line.length > columns ? `${line.slice(0, columns - 1)}…` : line;
}

function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

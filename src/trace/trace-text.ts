import { MARK } from '../observe/explain-text.ts';
import type { Explanation } from '../observe/explain-view.ts';
import type { Agreement, ComparedStep } from './agreement.ts';
import type { ClockNote } from './clocks.ts';
import { type Change, endText, type Hop, type Leg } from './hops.ts';
import type { TracedLookup } from './lookup.ts';
import type { Answer } from './outcome.ts';
import type { TraceResult } from './trace.ts';

/** Renders a trace for a terminal, without colours; ends with a line feed. */
export function renderTrace(
  explanation: Explanation,
  result: TraceResult,
  agreement: Agreement,
  lookups: readonly TracedLookup[] = [],
): string {
  const { from, to, packet } = explanation;
  const asked = packet
    ? ` (${endText({ ip: packet.destination, port: packet.port })}/${packet.protocol})`
    : '';
  return [
    `${from} → ${to}${asked}`,
    ...lookups.flatMap(lookupLines),
    ...result.legs.flatMap((leg) => legLines(leg)),
    '',
    ...verdictLines(explanation, result, agreement),
    '',
    'explain said:',
    ...agreement.steps.flatMap(stepLines),
    '',
  ].join('\n');
}

const LEG_TITLES: Readonly<Record<Leg['kind'], string>> = {
  SYN: 'SYN there',
  'SYN-ACK': 'SYN-ACK back',
  RST: 'reset (RST) back',
  segment: 'data',
  datagram: 'datagram there',
  answer: 'answer back',
  error: 'error back',
};

/** Renders the questions to name servers before a packet that was not sent. */
export const renderLookups = (lookups: readonly TracedLookup[]): string =>
  lookups.length === 0 ? '' : `${lookups.flatMap(lookupLines).slice(1).join('\n')}\n\n`;

function lookupLines({
  name,
  type,
  server,
  said,
  trace: { legs, answer, answeredAfterMs },
}: TracedLookup): string[] {
  const titles = { datagram: `DNS question there: ${name} ${type}, to ${server}`, answer: 'DNS answer back' };
  const after = answeredAfterMs === null ? '' : ` after ${timeText(answeredAfterMs * 1000)}`;
  return [
    ...legs.flatMap((leg) => legLines(leg, titles)),
    `  ${answerText(answer)}${after}${answer.kind === 'answered' ? `: ${said}` : ''}`,
  ];
}

function legLines(
  { kind, error, isRelayed, hops, repeatsUs }: Leg,
  titles: Partial<typeof LEG_TITLES> = {},
): string[] {
  const title = `${titles[kind] ?? LEG_TITLES[kind]}${error === null ? '' : `: ${error}`}`;
  let place = '';
  let addresses = '';
  const rows = hops.map((hop) => {
    const route = `${endText(hop.source)} → ${endText(hop.destination)}`;
    const row = [
      hop.sinceUs === 0 ? '0 µs' : timeText(hop.sinceUs),
      hop.place === place ? '' : hop.place,
      `${hop.direction.padEnd(3)} ${hop.deviceText}`,
      route === addresses && hop.tunnel === null ? '' : route,
    ];
    place = hop.place;
    addresses = route;
    return { row, notes: notesOf(hop) };
  });
  const widths = [0, 1, 2].map((column) => Math.max(0, ...rows.map(({ row }) => row[column]?.length ?? 0)));
  return [
    '',
    `${title}${isRelayed ? ', on the connection of the proxy to the endpoint' : ''}`,
    ...rows.flatMap(({ row, notes }) => {
      const [time = '', ...cells] = row;
      const text = cells.map((cell, i) => cell.padEnd(widths[i + 1] ?? 0)).join('  ');
      return [
        `  ${time.padStart(widths[0] ?? 0)}  ${text}`.trimEnd(),
        ...notes.map((note) => `      ${note}`),
      ];
    }),
    ...(repeatsUs.length > 0
      ? [`  sent again the same way after ${repeatsUs.map(timeText).join(', ')}`]
      : []),
  ];
}

function notesOf({ changes, tunnel }: Hop): string[] {
  const notes = changes.flatMap(changeLines);
  if (tunnel) notes.push(`inside VXLAN from ${tunnel.source} to ${tunnel.destination}`);
  return notes;
}

function changeLines({ field, before, after, by }: Change): string[] {
  return [`${field} changed from ${before} to ${after}`, ...by.map((object) => `  by ${object}`)];
}

/** "12 µs", "1.25 ms", "1.0 s" */
export function timeText(micros: number): string {
  if (micros < 1000) return `${micros.toFixed(0)} µs`;
  return micros < 1e6 ? `${(micros / 1000).toFixed(2)} ms` : `${(micros / 1e6).toFixed(1)} s`;
}

function verdictLines(
  { verdict, causes }: Explanation,
  { answer, answeredAfterMs, counters, lostFrames, clocks }: TraceResult,
  { isVerdictRight }: Agreement,
): string[] {
  const after = answeredAfterMs === null ? '' : ` after ${timeText(answeredAfterMs * 1000)}`;
  const said = `explain: ${MARK[verdict]}`;
  const agrees =
    isVerdictRight === null
      ? said
      : `${said}, which is ${isVerdictRight ? 'right' : 'WRONG: please report it'}`;
  const lines = [`${answerText(answer)}${after} (${agrees})`];
  if (answer.kind !== 'answered') {
    for (const { place, name, by, text } of counters)
      lines.push(`  counter at ${place}: ${name} +${by} (${text})`);
    for (const { text, fix } of causes)
      lines.push(`  because ${text}`, ...(fix === null ? [] : [`    fix ${fix}`]));
  }
  if (lostFrames > 0) lines.push(`  ${lostFrames} frames could not be read: hops may be missing`);
  lines.push(...clocks.map((note) => `  clock of ${note.machine}: ${clockText(note)}`));
  return lines;
}

/** Describes what was done about the clock of a machine. */
export function clockText({ reference, shiftUs, errorUs, by }: ClockNote): string {
  const shift = `its times are shown ${timeText(Math.abs(shiftUs))} ${shiftUs > 0 ? 'earlier' : 'later'}`;
  switch (by) {
    case 'both-ways': {
      const error = `within ${timeText(errorUs ?? 0)}, by the packets there and back`;
      return shiftUs === 0
        ? `agrees with that of ${reference} ${error}`
        : `${shift}, to agree with that of ${reference} ${error}`;
    }
    case 'one-way':
      return shiftUs === 0
        ? `not compared with that of ${reference}, because packets passed in one direction only: the time between the two nodes is not exact`
        : `${shift}, so that no packet arrives at ${reference} or here before it was sent; packets passed in one direction only, so that the time between the two nodes is not known`;
    case 'requests': {
      const error = errorUs === null ? '' : ` (within ${timeText(errorUs)})`;
      return shiftUs === 0
        ? `not compared with that of ${reference}, because no packet was seen on both: the order of hops between the two nodes may be wrong`
        : `${shift}, by the round trips of requests${error}, because no packet was seen on both nodes: the order of hops between them may be wrong`;
    }
  }
}

/** Describes what came back to the client. */
export function answerText(answer: Answer): string {
  switch (answer.kind) {
    case 'answered':
      return 'ANSWERED';
    case 'refused':
    case 'unreachable': {
      const where = answer.by === null ? "at the client's socket" : `by ${answer.by}`;
      return `${answer.kind === 'refused' ? 'REFUSED' : 'UNREACHABLE'} ${where}: ${answer.text}`;
    }
    case 'nothing':
      return answer.last === null
        ? 'NO ANSWER: no packet left the client'
        : `NO ANSWER: last seen at ${answer.last.place}, ${answer.last.device}`;
  }
}

function stepLines({ step, isRight, seen }: ComparedStep): string[] {
  const mark = isRight === null ? '·' : isRight ? '✓' : '✗';
  return [`  ${mark} ${step.text}`, ...(seen === null ? [] : [`      but ${seen}`])];
}

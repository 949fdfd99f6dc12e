import { type OutcomeWord, outcomeHeading } from '../lib/outcomes.ts';
import { fixText, MARK } from '../observe/explain-text.ts';
import type { Explanation } from '../observe/explanation.ts';
import type { Agreement, ComparedStep } from './agreement.ts';
import type { ClockNote } from './clocks.ts';
import { type Change, endText, type Hop, type Leg } from './hops.ts';
import { legTitle } from './leg-title.ts';
import type { TracedLookup } from './lookup.ts';
import type { Answer } from './outcome.ts';
import { isBlackHole, sizeLines } from './packet-sizes.ts';
import type { TraceResult } from './trace.ts';

/** Renders a trace for a terminal, without colours; ends with a line feed. `columns`: null: as wide as needed. */
export function renderTrace(
  explanation: Explanation,
  result: TraceResult,
  agreement: Agreement,
  lookups: readonly TracedLookup[] = [],
  columns: number | null = null,
): string {
  const { from, to, packet } = explanation;
  const asked = packet
    ? ` (${endText({ ip: packet.destination, port: packet.port })}/${packet.protocol})`
    : '';
  return [
    `${from} → ${to}${asked}`,
    ...lookups.flatMap((lookup) => lookupLines(lookup, columns)),
    ...result.legs.flatMap((leg) => legLines(leg, titleOf(leg, result.legs), columns)),
    '',
    ...verdictLines(explanation, result, agreement),
    '',
    'explain said:',
    ...agreement.steps.flatMap(stepLines),
    '',
  ].join('\n');
}

/** Renders the questions to name servers before a packet that was not sent. */
export const renderLookups = (lookups: readonly TracedLookup[], columns: number | null = null): string =>
  lookups.length === 0
    ? ''
    : `${lookups
        .flatMap((lookup) => lookupLines(lookup, columns))
        .slice(1)
        .join('\n')}\n\n`;

function lookupLines(
  { name, type, server, said, trace: { legs, answer, answeredAfterMs } }: TracedLookup,
  columns: number | null,
): string[] {
  const titles: Partial<Record<Leg['kind'], string>> = {
    datagram: `DNS query to ${server}: ${name} ${type}`,
    answer: 'DNS answer',
  };
  const after = answeredAfterMs === null ? '' : ` after ${timeText(answeredAfterMs * 1000)}`;
  return [
    ...legs.flatMap((leg) => legLines(leg, titles[leg.kind] ?? legTitle(leg, false), columns)),
    `  ${answerText(answer, null)}${after}${answer.kind === 'answered' ? `: ${said}` : ''}`,
  ];
}

const titleOf = (leg: Leg, legs: readonly Leg[]): string => {
  const title = legTitle(
    leg,
    legs.some(({ isRelayed }) => isRelayed),
  );
  return leg.isRelayed ? `${title}, on the connection of the proxy to the endpoint` : title;
};

function legLines({ hops, repeatsUs }: Leg, title: string, columns: number | null): string[] {
  return [
    '',
    title,
    ...hopLines(hops, columns),
    ...(repeatsUs.length > 0
      ? [`  sent again the same way after ${repeatsUs.map(timeText).join(', ')}`]
      : []),
  ];
}

/** Renders a line for each hop; where these do not fit, places and addresses have lines of their own. */
function hopLines(hops: readonly Hop[], columns: number | null): string[] {
  let before = { place: '', route: '' };
  const rows = hops.map((hop) => {
    const route = `${endText(hop.source)} → ${endText(hop.destination)}`;
    const row = {
      time: hop.sinceUs === 0 ? '0 µs' : timeText(hop.sinceUs),
      place: hop.place === before.place ? '' : hop.place,
      device: `${hop.direction.padEnd(3)} ${hop.deviceText}`,
      route: route === before.route && hop.tunnel === null ? '' : route,
      notes: notesOf(hop).map((note) => `      ${note}`),
    };
    before = { place: hop.place, route };
    return row;
  });
  const widthOf = (cell: 'time' | 'place' | 'device') => Math.max(0, ...rows.map((row) => row[cell].length));
  const [time, place, device] = [widthOf('time'), widthOf('place'), widthOf('device')];
  const wide = rows.flatMap((row) => {
    const cells = [row.time.padStart(time), row.place.padEnd(place), row.device.padEnd(device), row.route];
    return [`  ${cells.join('  ')}`.trimEnd(), ...row.notes];
  });
  const fits = (lines: readonly string[]) =>
    columns === null || lines.every(({ length }) => length <= columns);
  if (fits(wide.filter((line) => !line.startsWith('      ')))) return wide;
  const translating = Math.max(
    0,
    ...rows.filter(({ route }) => route !== '').map((row) => row.device.length),
  );
  return rows.flatMap((row) => {
    const at = `    ${row.time.padStart(time)}  `;
    const line = `${at}${row.device.padEnd(translating)}  ${row.route}`.trimEnd();
    const apart = [`${at}${row.device}`, `${' '.repeat(at.length + 'out '.length)}${row.route}`];
    return [
      ...(row.place === '' ? [] : [`  ${row.place}`]),
      ...(fits([line]) || row.route === '' ? [line] : apart),
      ...row.notes,
    ];
  });
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
  { answer, answeredAfterMs, counters, drops, sizes, lostFrames, clocks }: TraceResult,
  { isVerdictRight }: Agreement,
): string[] {
  const after = answeredAfterMs === null ? '' : ` after ${timeText(answeredAfterMs * 1000)}`;
  const said = `explain: ${MARK[verdict]}`;
  const agrees =
    isVerdictRight === null
      ? said
      : `${said}, which is ${isVerdictRight ? 'right' : 'WRONG: please report it'}`;
  const isKnown = drops.length > 0 || (verdict === 'dropped' && isVerdictRight === true);
  const lines = [`${answerText(answer, isKnown ? 'dropped' : null)}${after} (${agrees})`];
  const isLost = answer.kind !== 'answered';
  // Replies may be dropped at several places; each is named.
  for (const { place, where } of isLost || sizes.some(isBlackHole) ? drops : [])
    lines.push(`  dropped at ${place} by nf_tables: ${where}`);
  if (isLost) {
    for (const { place, name, by, text } of counters)
      lines.push(`  counter at ${place}: ${name} +${by} (${text})`);
  }
  lines.push(...sizeLines(sizes).map((line) => `  ${line}`));
  // Rules of other programs that were not simulated may be about the size of packets.
  if (isLost || (verdict === 'unknown' && sizes.some(isBlackHole))) {
    for (const cause of causes)
      lines.push(`  because ${cause.text}`, ...(cause.fix === null ? [] : [`  fix: ${fixText(cause)}`]));
  }
  if (lostFrames > 0) lines.push(`  ${lostFrames} frames could not be read: hops may be missing`);
  lines.push(...clocks.map((note) => `  clock of ${note.machine}: ${clockText(note)}`));
  return lines;
}

/** Describes the correction of the clock of a machine. */
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

/** Describes the answer to the client. `silence`: the meaning of the lack of an answer, if it is known. */
function answerText(answer: Answer, silence: OutcomeWord | null): string {
  switch (answer.kind) {
    case 'answered':
      return outcomeHeading('delivered');
    case 'refused':
    case 'unreachable': {
      const where = answer.by === null ? "at the client's socket" : `by ${answer.by}`;
      return `${outcomeHeading(answer.kind === 'refused' ? 'rejected' : 'unreachable')} ${where}: ${answer.text}`;
    }
    case 'nothing':
      return answer.last === null
        ? `${outcomeHeading(silence ?? 'no-answer')}: no packet left the client`
        : `${outcomeHeading(silence ?? 'no-answer')}: last seen at ${answer.last.place}, ${answer.last.device}`;
  }
}

function stepLines({ step, isRight, seen }: ComparedStep): string[] {
  const mark = isRight === null ? '·' : isRight ? '✓' : '✗';
  return [`  ${mark} ${step.text}`, ...(seen === null ? [] : [`      but ${seen}`])];
}

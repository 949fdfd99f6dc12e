import type { ModeComparison, ModeFacts, ModeSection } from './comparison.ts';
import { counted } from './rendering.ts';

const COLUMNS = 80;
/** The lines of each kind of object in the short form. */
const FEW_LINES = 4;
const LABEL_WIDTH = 16;
const HEADINGS = ['MODE', 'OBJECTS', 'BYTES', 'LOOKUPS', 'LATER PACKETS'];

/** Renders a comparison, at most 80 columns wide. `whole`: with all lines, and the objects that Services share. */
export function renderComparison(comparison: ModeComparison, { whole }: { readonly whole: boolean }): string {
  const { service, node, frontends, endpoints, modes } = comparison;
  const head = `${service} on ${node}: ${endpoints} endpoint${endpoints === 1 ? '' : 's'} behind ${frontends.join(', ')}`;
  const isCut =
    !whole &&
    modes.some(({ sections, kubeProxy = [] }) =>
      [...sections, ...kubeProxy].some((one) => one.isShared || isLong(one)),
    );
  return [
    ...wrapped(head, 0, 2),
    '',
    ...table([HEADINGS, ...modes.map(row)]),
    ...modes.flatMap((one) => ['', ...block(one, whole)]),
    ...(isCut ? ['', 'More objects, and those that Services share: --verbose'] : []),
    '',
  ].join('\n');
}

function row({ mode, isInUse, unavailable, counts, sizes, firstPacket, laterPackets }: ModeFacts): string[] {
  const objects = counts.reduce((sum, { count }) => sum + count, 0);
  const bytes = sizes.reduce((sum, one) => sum + one.bytes, 0);
  const { least, most } = firstPacket;
  const mark = isInUse ? ' (in use)' : unavailable === null ? '' : ' (not here)';
  const lookups = least === most ? `${most}` : `${least} to ${most}`;
  return [`${mode}${mark}`, String(objects), String(bytes), lookups, laterPackets];
}

function block(facts: ModeFacts, whole: boolean): string[] {
  const { mode, unavailable, sections, counts, sizes, differences, notes } = facts;
  const size = [
    counts.map(({ kind, count }) => counted(kind, count)).join(', '),
    ...sizes.filter(({ bytes }) => bytes > 0).map(({ what, bytes }) => `${bytes} bytes (${what})`),
  ];
  return [
    ...wrapped(`${mode}${stateText(facts)}`, 0, 2),
    ...(unavailable?.fix ? labelled('fix', unavailable.fix) : []),
    ...labelled('translated at', facts.translatedAt),
    ...labelled('first packet', facts.firstPacket.text),
    ...labelled('later packets', facts.laterPackets),
    ...labelled('size', size.join('; ')),
    ...differences.flatMap((text) => labelled('differs', text)),
    ...notes.flatMap((text) => labelled('note', text)),
    ...sections.filter(({ isShared }) => whole || !isShared).flatMap((one) => sectionLines(one, whole)),
    ...kubeProxyLines(facts.kubeProxy ?? [], whole),
  ];
}

/** Renders kube-proxy's objects in the same mode, beside this program's. */
function kubeProxyLines(sections: readonly ModeSection[], whole: boolean): string[] {
  const own = sections.filter(({ isShared }) => !isShared);
  if (own.length === 0) return [];
  const count = own.reduce((sum, one) => sum + one.count, 0);
  return [
    ...labelled('kube-proxy', `would write ${counted('rules', count)}`),
    ...(whole ? sections : own).flatMap((one) => sectionLines(one, whole)),
  ];
}

/** Returns ": in use, …", the state of a mode after its name. */
function stateText({ isInUse, unavailable, drifts }: ModeFacts): string {
  if (unavailable !== null) return `: not available on this node: ${unavailable.reason}`;
  if (!isInUse) return '';
  if (drifts === null || drifts.length === 0) return ': in use; matches the kernel';
  return `: in use; the kernel differs in ${drifts.join('; ')}`;
}

function sectionLines(section: ModeSection, whole: boolean): string[] {
  const { command, lines, count, isShared } = section;
  const shown = whole ? lines : lines.slice(0, FEW_LINES);
  const left = count - shown.length;
  return [
    ...wrapped(`# ${command}${isShared ? ' (shared by Services)' : ''}`, 2, 4),
    ...shown.flatMap((line) => wrapped(line, 2, 6)),
    ...(left > 0 ? [`  … and ${left} more`] : []),
  ];
}

const isLong = ({ count }: ModeSection): boolean => count > FEW_LINES;

const labelled = (label: string, text: string): string[] =>
  wrapped(`${label.padEnd(LABEL_WIDTH - 2)}${text}`, 2, LABEL_WIDTH);

/** Breaks a line at spaces; `indent`: of the first line, `next`: of the others. */
function wrapped(text: string, indent: number, next: number): string[] {
  const lines: string[] = [];
  let line = ' '.repeat(indent);
  let isEmpty = true;
  for (const word of text.split(' ')) {
    if (!isEmpty && line.length + 1 + word.length > COLUMNS) {
      lines.push(line);
      line = ' '.repeat(next) + word;
    } else {
      line += isEmpty ? word : ` ${word}`;
    }
    isEmpty = false;
  }
  return [...lines, line.trimEnd()];
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = HEADINGS.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(i === row.length - 1 ? 0 : (widths[i] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

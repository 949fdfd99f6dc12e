import type { Cause, Explanation } from './explain-view.ts';

const MARK: Readonly<Record<Explanation['verdict'], string>> = {
  delivered: 'DELIVERED',
  rejected: 'REJECTED',
  dropped: 'DROPPED',
  unresolved: 'NOT SENT',
  unknown: 'UNKNOWN',
};

/** Renders an explanation as lines for a terminal, without colours; ends with a line feed. */
export function renderExplanation(explanation: Explanation): string {
  const { from, to, packet, steps, endpoints, verdict, reason, causes } = explanation;
  const lines = [`${from} → ${to}`];
  if (packet) {
    lines.push(
      `  ${bracketed(packet.source)} → ${bracketed(packet.destination)}:${packet.port}/${packet.protocol}`,
    );
  }
  lines.push('');
  for (const [i, { text, ruleOrKey }] of steps.entries()) {
    lines.push(`${String(i + 1).padStart(2)}. ${text}`);
    if (ruleOrKey) lines.push(`      ${ruleOrKey}`);
  }
  if (endpoints.length > 0) {
    const rows = endpoints.map(({ address, port, pod, odds, nextHop, masquerade, hairpin, terminating }) => [
      `${bracketed(address)}:${port}`,
      `${(odds * 100).toFixed(1)} %`,
      pod ?? '-',
      nextHop,
      [hairpin ? 'hairpin' : masquerade ? 'masquerade' : '', terminating ? 'terminating' : '']
        .filter(Boolean)
        .join(', '),
    ]);
    lines.push('', ...aligned(rows).map((line) => `    ${line}`));
  }
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

function aligned(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}

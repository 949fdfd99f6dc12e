import type { Finding } from '../agent/preflight-finding.ts';

const MARKS = { ok: '✓', note: '!', problem: '✗' } as const;

/** Renders a finding with its fix. */
export const findingText = ({ level, what, fix }: Finding): string =>
  `${MARKS[level]} ${what}${fix === null ? '' : `\n    fix: ${fix}`}\n`;

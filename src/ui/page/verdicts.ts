import type { EdgeVerdict } from '../view.ts';

/** How a verdict is shown: a mark and a pattern of the line besides the colour, which alone would not be seen by all. */
export interface VerdictStyle {
  readonly mark: string;
  readonly word: string;
  /** SVG stroke-dasharray; null: a solid line. */
  readonly dashes: string | null;
}

export const VERDICTS: Readonly<Record<EdgeVerdict, VerdictStyle>> = {
  delivered: { mark: '✓', word: 'delivered', dashes: null },
  sent: { mark: '→', word: 'sent', dashes: '1 4' },
  rejected: { mark: '✕', word: 'rejected', dashes: '8 4' },
  reset: { mark: '↯', word: 'reset', dashes: '8 4 2 4' },
  dropped: { mark: '⊘', word: 'dropped', dashes: '3 5' },
  'no-answer': { mark: '…', word: 'no answer', dashes: '12 6' },
  unreachable: { mark: '⇥', word: 'unreachable', dashes: '2 3' },
  stalled: { mark: '‖', word: 'stalled', dashes: '10 3 2 3' },
  'not-found': { mark: '?', word: 'name not found', dashes: '5 5' },
};

/** Reports whether a verdict is a failure. */
export const isFailure = (verdict: EdgeVerdict): boolean => verdict !== 'delivered' && verdict !== 'sent';

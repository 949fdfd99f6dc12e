import type { Mode } from '../dataplane/dataplane.ts';
import { type DifferenceId, differenceText, MODE_DIFFERENCES } from '../dataplane/mode-differences.ts';
import type { Expectation } from './expectation.ts';
import type { Flow } from './flows.ts';

/** Whom a server sees as its client: the client itself, or the client's node. */
export type Source = 'client' | 'node';

/** The effect of a difference between modes on the flows of the check. */
interface Effect {
  /** The source that servers see instead of the usual one. */
  readonly sources: Readonly<Partial<Record<Source, Source>>>;
  /** Whom a pod that reaches itself may see, besides its node. */
  readonly self: readonly Source[];
}

/** The check sends no flow that the difference concerns. */
const NONE: Effect = { sources: {}, self: [] };

const EFFECTS: Readonly<Record<DifferenceId, Effect>> = {
  'server-sees-node': { ...NONE, sources: { client: 'node' } },
  'hairpin-keeps-source': { ...NONE, self: ['client'] },
  'other-nodes-pods-are-outside': NONE,
  'no-sctp': NONE,
  'node-ports-on-primary-addresses': NONE,
};

/** The expected outcome of a flow in a mode. */
export interface ModeExpectation {
  readonly expected: Expectation;
  /** Whom the client sees if it is a pod that reaches itself: its node, or its reply would not be translated back. */
  readonly self: readonly Source[];
  /** The documented difference that changes the outcome; null: none. */
  readonly difference: string | null;
}

export function expectationIn(mode: Mode, { expected }: Pick<Flow, 'expected'>): ModeExpectation {
  const ids = MODE_DIFFERENCES.filter(({ modes }) => modes.includes(mode)).map(({ id }) => id);
  const self: readonly Source[] = ['node', ...ids.flatMap((id) => EFFECTS[id].self)];
  if (expected.action !== 'forward') return { expected, self, difference: null };
  for (const id of ids) {
    const source = EFFECTS[id].sources[expected.source];
    if (source) return { expected: { ...expected, source }, self, difference: differenceText(id) };
  }
  return { expected, self, difference: null };
}

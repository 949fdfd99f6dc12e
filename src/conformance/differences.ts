import type { Mode } from '../dataplane/dataplane.ts';
import { type DifferenceId, differenceText, modeDiffers } from '../dataplane/mode-differences.ts';
import type { Expectation } from './expectation.ts';
import type { Flow } from './flows.ts';

/** The effect of a difference between modes on the flows of the check. */
interface Effect {
  readonly id: DifferenceId;
  applies(flow: Flow): boolean;
  /** The outcome in these modes. */
  instead(expected: Expectation): Expectation;
}

const EFFECTS: readonly Effect[] = [
  {
    id: 'server-sees-node',
    applies: ({ expected }) => expected.action === 'forward' && expected.source === 'client',
    instead: (expected) => (expected.action === 'forward' ? { ...expected, source: 'node' } : expected),
  },
];

/** Returns the expected outcome of a flow in a mode. */
export function expectationIn(
  mode: Mode,
  flow: Flow,
): { readonly expected: Expectation; readonly difference: string | null } {
  const effect = EFFECTS.find(({ id, applies }) => modeDiffers(mode, id) && applies(flow));
  return effect
    ? { expected: effect.instead(flow.expected), difference: differenceText(effect.id) }
    : { expected: flow.expected, difference: null };
}

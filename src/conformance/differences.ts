import type { Mode } from '../dataplane/dataplane.ts';
import type { Expectation } from './expectation.ts';
import type { Flow } from './flows.ts';

/** Where a mode must differ from the others, and why; each is told in docs/modes.md. */
interface Difference {
  readonly mode: Mode;
  readonly reason: string;
  applies(flow: Flow): boolean;
  /** What happens instead. */
  instead(expected: Expectation): Expectation;
}

const DIFFERENCES: readonly Difference[] = [
  {
    mode: 'userspace',
    reason: "the server's connection comes from the proxy, so it sees the node instead of the client",
    applies: ({ expected }) => expected.action === 'forward' && expected.source === 'client',
    instead: (expected) => (expected.action === 'forward' ? { ...expected, source: 'node' } : expected),
  },
];

/** What a flow's packets must meet in a mode. */
export function expectationIn(
  mode: Mode,
  flow: Flow,
): { readonly expected: Expectation; readonly difference: string | null } {
  const difference = DIFFERENCES.find((one) => one.mode === mode && one.applies(flow));
  return difference
    ? { expected: difference.instead(flow.expected), difference: difference.reason }
    : { expected: flow.expected, difference: null };
}

import type { TraceResult } from './trace.ts';

/** A question to a name server, asked before the packet of a trace, and the real way of the question and its answer. */
export interface TracedLookup {
  /** The full name in the question. */
  readonly name: string;
  readonly type: 'A' | 'AAAA';
  /** The name server's address. */
  readonly server: string;
  /** The result for the client's resolver: addresses, an RCODE, or "no answer". */
  readonly said: string;
  readonly trace: TraceResult;
}

/** The result of a question without an answer, in the words of explain. */
export const NO_ANSWER = 'no answer';

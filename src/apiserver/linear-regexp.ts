import { setFlagsFromString } from 'node:v8';

/**
 * Makes this process match regular expressions in linear time if backtracking takes long (V8's second engine, used
 * after 50,000 backtracks). Clients write patterns in schemas and in CEL; without this, `^(a+)+$` and forty letters
 * would block the server. Patterns with backreferences or lookaround keep the first engine; upstream's RE2 does not
 * support those.
 */
export function matchInLinearTime(): void {
  setFlagsFromString('--enable-experimental-regexp-engine-on-excessive-backtracks');
}

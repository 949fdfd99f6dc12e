import { setFlagsFromString } from 'node:v8';

/**
 * Makes this process match regular expressions in linear time once backtracking takes long (V8's second engine, which
 * takes over after 50,000 backtracks). Clients write patterns, in schemas and in CEL; without it `^(a+)+$` and forty
 * letters would stop the server. Patterns with backreferences or lookaround keep the first engine; upstream's RE2 does
 * not have those.
 */
export function matchInLinearTime(): void {
  setFlagsFromString('--enable-experimental-regexp-engine-on-excessive-backtracks');
}

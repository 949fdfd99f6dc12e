/**
 * Decides which paths a gateway accepts. A request is routed by exactly the bytes that its backend will see: nothing is
 * normalised, and what backends read in different ways is refused with 400, before any route. HAProxy does the same with
 * regular expressions on the raw path.
 *
 * | in the path | what happens | reason |
 * | --- | --- | --- |
 * | `/./`, `/../`, also at the end, also with `%2e` | 400 | servers resolve them: `/public/../admin` would pass as /public |
 * | `/..;x/`, `/.;/`, also with `%3b` | 400 | servers of Java drop what follows `;`, then resolve the dots |
 * | `%2f`, `%5c`, `%00` (either case) | 400 | servers decode them before or after they split the path |
 * | `\` | 400 | some servers read it as `/` |
 * | bytes up to 0x20, 0x7f and above, `#`, a `%` without two hexadecimal digits | 400 | not allowed in a path (RFC 3986) |
 * | no `/` at the beginning, also `*` of OPTIONS | 400 | not a path of an origin, so no route has it |
 * | `//` | as it is | an empty segment: prefix /a does not match //a |
 * | `;` | as it is | a part of its segment: prefix /a does not match /a;b |
 * | other `%XX`, upper and lower case | as it is | /%61 is not /a; routes match the text that is sent |
 */
export function pathRefusal(path: string): string | null {
  if (path.length > LONGEST_PATH) return `is longer than ${LONGEST_PATH} bytes`;
  if (!path.startsWith('/')) return 'does not begin with "/"';
  if (NOT_ALLOWED.test(path)) return 'has a byte that a path cannot have';
  if (BAD_ESCAPE.test(path)) return 'has "%" without two hexadecimal digits';
  if (ENCODED_SEPARATOR.test(path)) return 'has an encoded "/", "\\" or NUL';
  if (DOT_SEGMENT.test(path)) return 'has a "." or ".." segment';
  return null;
}

export const LONGEST_PATH = 8192;

/** The expressions of the table, in the syntax that JavaScript and PCRE2 share. A rendering uses the same text. */
export const REFUSED_PATHS = {
  notAllowed: '[^!-~]|[#\\\\]',
  badEscape: '%(?:[^0-9A-Fa-f]|$|[0-9A-Fa-f](?:[^0-9A-Fa-f]|$))',
  encodedSeparator: '%(?:2[fF]|5[cC]|00)',
  dotSegment: '/(?:\\.|%2[eE])(?:\\.|%2[eE])?(?:/|;|%3[bB]|$)',
} as const;

const NOT_ALLOWED = new RegExp(REFUSED_PATHS.notAllowed);
const BAD_ESCAPE = new RegExp(REFUSED_PATHS.badEscape);
const ENCODED_SEPARATOR = new RegExp(REFUSED_PATHS.encodedSeparator);
const DOT_SEGMENT = new RegExp(REFUSED_PATHS.dotSegment);

/** Returns why no request that is accepted has this path of a route; null: some have. */
export function unreachablePath(path: string): string | null {
  const problem = pathRefusal(path);
  if (problem !== null) return `it ${problem}`;
  return path.includes('?') ? 'it has a "?", where the query begins' : null;
}

import { FairleadError } from '../../lib/errors.ts';
import { portableRegex } from '../regex.ts';

/**
 * The only way of texts from objects into HAProxy's configuration and maps. A text either arrives as it is, at its place
 * and nowhere else, or FairleadError "bad-argument" says why it cannot: its route is left out then.
 */

/** Texts that need no encoding anywhere in a format: HAProxy merges spaces that follow each other, so none do. */
const PLAIN = /^[A-Za-z0-9._~:/@+*,;=!?& -]*$/;
const SPACES = /^ | $| {2}/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is refused.
const CONTROL = /[\x00-\x1f\x7f]/;
const TOKEN = /^[A-Za-z0-9!#$&'*+.^_`|~-]{1,256}$/;
const MAX_BYTES = 8192;

const refusal = (what: string, problem: string, text: string) =>
  new FairleadError(`${what} ${JSON.stringify(text.slice(0, 64))} ${problem}`, {
    op: 'render a gateway',
    code: 'bad-argument',
  });

function checked(what: string, text: string): string {
  if (CONTROL.test(text)) throw refusal(what, 'has a control character', text);
  if (Buffer.byteLength(text) > MAX_BYTES) throw refusal(what, `has more than ${MAX_BYTES} bytes`, text);
  return text;
}

/** Returns one word of the configuration. Single quotes keep everything but themselves. */
export function word(text: string): string {
  return `'${checked('the text', text).replaceAll("'", "'\\''")}'`;
}

/**
 * Returns a text as a part of a format (the arguments of set-header, set-path and others). What could mean something there is
 * encoded: base64 has no character that ends an argument.
 */
export function literal(text: string): string {
  checked('the value', text);
  if (text === '' || (PLAIN.test(text) && !SPACES.test(text))) return text;
  return `%[str(${Buffer.from(text).toString('base64')}),b64dec]`;
}

/** Returns a format as one word: `parts` are results of literal(), variables and backreferences. */
export function format(...parts: readonly string[]): string {
  const text = parts.join('');
  // An empty word does not count as an argument; a variable that is not set is empty.
  return `"${text === '' ? '%[var(txn.empty)]' : text}"`;
}

/** Returns a text as the hex converter prints it. Used to compare: a pattern has no character with a meaning. */
export const hex = (text: string): string =>
  Buffer.from(checked('the value', text)).toString('hex').toUpperCase();

/** Returns the name of a header, in lower case. */
export function headerName(name: string): string {
  if (!TOKEN.test(name)) throw refusal('the header', 'is not a token of RFC 9110', name);
  return word(name.toLowerCase());
}

/** Returns the name of a method. */
export function methodName(name: string): string {
  if (!/^[A-Z]{1,32}$/.test(name)) throw refusal('the method', 'has other characters than A to Z', name);
  return name;
}

/** Returns the name of a header or query parameter as the argument of a fetch, where quotes would be read twice. */
export function argumentName(name: string): string {
  if (!/^[A-Za-z0-9_.~-]{1,256}$/.test(name))
    throw refusal('a match of the name', 'has characters that are not supported there', name);
  return name;
}

/**
 * Returns a path for requests to backends and for Location, where a space or a question mark would change the request: whatever
 * cannot be in a path is encoded as in RFC 3986.
 */
export function path(text: string): string {
  checked('the path', text);
  const encoded = text.replace(/%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~!$&'()*+,;=:@/%]/gu, (found) =>
    [...Buffer.from(found)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
  return encoded;
}

/** Returns a key of a map, whose lines end the key at the first space; null: no request's path can be equal to it. */
export function mapKey(text: string): string | null {
  return /^[!-~]+$/.test(text) && text.length <= MAX_BYTES ? text : null;
}

/** Steps of PCRE2 for one match. */
const MATCH_LIMIT = 20_000;

/** Returns a pattern of PCRE2 as a word: its parts are constants, or results of regex() and regexText(). */
export const pattern = (...parts: readonly string[]): string =>
  word(`(*LIMIT_MATCH=${MATCH_LIMIT})${parts.join('')}`);

/** Returns an expression of a route as a group of PCRE2. */
export function regex(text: string): string {
  const portable = portableRegex(text);
  if (portable === null)
    throw refusal('the regular expression', 'is not one that every engine reads alike', text);
  return `(?:${portable})`;
}

/** Returns a regular expression that only this text matches. */
export const regexText = (text: string): string =>
  [...Buffer.from(checked('the value', text))]
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9]/.test(character) ? character : `\\x${byte.toString(16).padStart(2, '0')}`;
    })
    .join('');

/** Returns a pattern that an expression of a route must match from the beginning to the end. */
export const wholeRegex = (text: string): string => pattern('^', regex(text), '$');

/** Reports a rule's text that this code cannot write; the iptables program may know it. */
export class UnknownRule extends Error {
  override readonly name = 'UnknownRule';
}

/**
 * The words of a rule's text, which a single space separates; a word in double quotes may contain spaces. Every function
 * throws UnknownRule if the next word is not of its kind. Optimised for hundreds of thousands of rules: few parts of the
 * text become strings of their own.
 */
export interface Words {
  /** Starts to read a text. */
  open(text: string): void;
  /** Returns true once all words are taken. */
  isEmpty(): boolean;
  /** Takes the next word. */
  take(): string;
  /** Takes the next word if it is `word`. */
  takeIf(word: string): boolean;
  expect(word: string): void;
  /** Takes an option such as "-m". Returns the code of its letter. */
  option(): number;
  /** Takes a number from 0 to `most`, decimal or "0x…", up to the first other character. */
  number(most: number): number;
  /** Takes the text before a character, and the character. */
  takeUntil(character: string): string;
  /** Takes the four numbers of "10.0.0.1". */
  dotted(out: Uint8Array, at: number): void;
  /** Takes this character if it is the next one. */
  isNext(character: string): boolean;
  /** Takes the end of a word of which parts have been taken. */
  end(): void;
  /** Takes a word in quotes as bytes: printable ASCII that iptables-save does not escape. Returns their number. */
  quoted(out: Uint8Array, at: number, room: number): number;
  /** Returns an error for the text. */
  unknown(): UnknownRule;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const DIGIT_0 = 0x30;

/** Returns a reader of rules, for one text at a time. */
export function createWords(): Words {
  let text = '';
  let from = 0;

  const unknown = () => new UnknownRule(text);

  function end(): void {
    if (from < text.length && text.charCodeAt(from) !== SPACE) throw unknown();
    from++;
  }

  function takeIf(word: string): boolean {
    const end = from + word.length;
    if (!text.startsWith(word, from) || (end < text.length && text.charCodeAt(end) !== SPACE)) return false;
    from = end + 1;
    return true;
  }

  return {
    open(rule) {
      text = rule;
      from = 0;
    },
    isEmpty: () => from >= text.length,
    take() {
      if (from >= text.length) throw unknown();
      const space = text.indexOf(' ', from);
      const end = space < 0 ? text.length : space;
      const word = text.slice(from, end);
      from = end + 1;
      return word;
    },
    takeIf,
    option() {
      const isOption = text.charCodeAt(from) === 0x2d && text.charCodeAt(from + 2) === SPACE;
      if (!isOption) throw unknown();
      const letter = text.charCodeAt(from + 1);
      from += 3;
      return letter;
    },
    expect(word) {
      if (!takeIf(word)) throw unknown();
    },
    number(most) {
      const isHex = text.charCodeAt(from) === DIGIT_0 && text.charCodeAt(from + 1) === 0x78;
      if (isHex) from += 2;
      const start = from;
      let value = 0;
      for (; from < text.length; from++) {
        const code = text.charCodeAt(from);
        let digit = code - DIGIT_0;
        if (isHex && code >= 0x61 && code <= 0x66) digit = code - 0x61 + 10;
        if (digit < 0 || digit > 15 || (digit > 9 && !isHex)) break;
        value = value * (isHex ? 16 : 10) + digit;
      }
      if (from === start || from - start > 10 || value > most) throw unknown();
      return value;
    },
    takeUntil(character) {
      const found = text.indexOf(character, from);
      if (found < 0) throw unknown();
      const part = text.slice(from, found);
      from = found + 1;
      return part;
    },
    isNext(character) {
      const isThere = from < text.length && text.charCodeAt(from) === character.charCodeAt(0);
      if (isThere) from++;
      return isThere;
    },
    end,
    dotted(out, at) {
      for (let i = 0; i < 4; i++) {
        let value = 0;
        const start = from;
        for (; from < text.length; from++) {
          const digit = text.charCodeAt(from) - DIGIT_0;
          if (digit < 0 || digit > 9) break;
          value = value * 10 + digit;
        }
        if (from === start || from - start > 3 || value > 255) throw unknown();
        out[at + i] = value;
        if (i < 3 && text.charCodeAt(from++) !== 0x2e) throw unknown();
      }
    },
    quoted(out, at, room) {
      if (text.charCodeAt(from) !== QUOTE) throw unknown();
      const start = ++from;
      for (; from < text.length; from++) {
        const code = text.charCodeAt(from);
        if (code === QUOTE) break;
        if (!isPlain(code) || from - start >= room) throw unknown();
        out[at + from - start] = code;
      }
      const length = from - start;
      if (from >= text.length) throw unknown();
      from++;
      end();
      return length;
    },
    unknown,
  };
}

/** Printable, and not one of the characters that iptables-save escapes: ", ' and \. */
export const isPlain = (code: number): boolean =>
  code >= SPACE && code < 0x7f && code !== QUOTE && code !== 0x27 && code !== 0x5c;

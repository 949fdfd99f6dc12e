import { KubeletError } from './kubelet-error.ts';

/** Linux: MAX_ARG_STRLEN, of one argument or variable, and its end. */
const MAX_TEXT = 128 * 1024 - 1;
/** Linux: the most that arguments and environment have together (_STK_LIM / 4 * 3). */
const MAX_ALL = 6 * 1024 * 1024;

/** A part of a text with variables: literal, or the name of a variable. */
interface Part {
  readonly literal: string;
  readonly name: string | null;
}

/** Divides a text at $(NAME); $$ is a literal $. Reads the text once, whatever a pod's author has written. */
function* partsOf(text: string): Generator<Part> {
  let at = 0;
  let hasEnd = true;
  for (;;) {
    const dollar = text.indexOf('$', at);
    if (dollar < 0) break;
    const next = text[dollar + 1];
    const end = next === '(' && hasEnd ? text.indexOf(')', dollar) : -1;
    // Nor has a later one.
    if (next === '(' && end < 0) hasEnd = false;
    if (end >= 0) {
      yield { literal: text.slice(at, dollar), name: null };
      yield { literal: text.slice(dollar, end + 1), name: text.slice(dollar + 2, end) };
      at = end + 1;
    } else {
      yield { literal: text.slice(at, dollar + 1), name: null };
      at = dollar + (next === '$' ? 2 : 1);
    }
  }
  yield { literal: text.slice(at), name: null };
}

/**
 * Replaces $(NAME) by a variable's value; $$(NAME) becomes $(NAME); unknown names are kept. Throws KubeletError
 * "CreateContainerConfigError" for a result that the kernel gives to no program: variables of variables grow without end.
 */
export function expand(text: string, variables: ReadonlyMap<string, string>): string {
  const parts: string[] = [];
  let length = 0;
  for (const { literal, name } of partsOf(text)) {
    const part = name === null ? literal : (variables.get(name) ?? literal);
    length += part.length;
    if (length > MAX_TEXT) throw tooLong(`an argument or variable has more than ${MAX_TEXT} bytes`);
    parts.push(part);
  }
  return parts.join('');
}

/** Returns the first variable of a text that has no value; null: all have one. */
export function missingVariable(text: string, variables: ReadonlyMap<string, string>): string | null {
  for (const { name } of partsOf(text)) if (name !== null && !variables.has(name)) return name;
  return null;
}

/** Counts the texts of a program's start; throws KubeletError as `expand` if all together are too long. */
export function createTextCount(): (text: string) => void {
  let total = 0;
  return (text) => {
    total += text.length;
    if (total > MAX_ALL) throw tooLong(`the arguments or variables have more than ${MAX_ALL} bytes together`);
  };
}

const tooLong = (message: string): KubeletError =>
  new KubeletError('CreateContainerConfigError', `${message}, the kernel's limit`, {
    op: 'expand variables',
    hint: 'shorten args and env, whose $(NAME) are replaced',
  });

import { parseRegex, type Regex, type RegexNode } from './regex-syntax.ts';

/**
 * Matches accepted regular expressions in time that grows with the text times the expression, whatever both are: every state
 * advances together, so nothing is tried again. Which alternative wins is that of RE2 and PCRE2: the first.
 */
export interface RegexMachine {
  /** Returns the text of each group (0: all of it) if the whole text matches, or null. Characters are bytes. */
  match(text: string): readonly (string | undefined)[] | null;
}

type Instruction =
  | { readonly op: 'set'; readonly has: Uint8Array }
  /** Continues at both; `first` is preferred. */
  | { readonly op: 'split'; first: number; second: number }
  | { readonly op: 'jump'; to: number }
  | { readonly op: 'save'; readonly slot: number }
  | { readonly op: 'assert'; readonly at: 'start' | 'end' | 'word-edge' | 'no-word-edge' }
  | { readonly op: 'end' };

/** Compiles a regular expression; null if it is refused. */
export function compileRegex(text: string): RegexMachine | null {
  const parsed = parseRegex(text);
  if ('problem' in parsed) return null;
  const program = compile(parsed);
  const slots = (parsed.captures + 1) * 2;
  return { match: (subject) => run(program, slots, subject) };
}

function compile({ node }: Regex): readonly Instruction[] {
  const program: Instruction[] = [];
  emit(program, node);
  program.push({ op: 'end' });
  return program;
}

function emit(program: Instruction[], node: RegexNode): void {
  switch (node.kind) {
    case 'set': {
      const has = new Uint8Array(256);
      for (const [from, to] of node.set) has.fill(1, from, to + 1);
      program.push({ op: 'set', has });
      return;
    }
    case 'sequence':
      for (const item of node.items) emit(program, item);
      return;
    case 'choice':
      emitChoice(program, node.items);
      return;
    case 'group':
      if (node.capture !== null) program.push({ op: 'save', slot: node.capture * 2 });
      emit(program, node.item);
      if (node.capture !== null) program.push({ op: 'save', slot: node.capture * 2 + 1 });
      return;
    case 'assertion':
      program.push({ op: 'assert', at: node.at });
      return;
    case 'repeat':
      emitRepeat(program, node);
  }
}

function emitChoice(program: Instruction[], items: readonly RegexNode[]): void {
  const jumps: { to: number }[] = [];
  items.forEach((item, index) => {
    const last = index === items.length - 1;
    const split = { op: 'split' as const, first: program.length + 1, second: 0 };
    if (!last) program.push(split);
    emit(program, item);
    if (last) return;
    const jump = { op: 'jump' as const, to: 0 };
    program.push(jump);
    jumps.push(jump);
    split.second = program.length;
  });
  for (const jump of jumps) jump.to = program.length;
}

function emitRepeat(
  program: Instruction[],
  { item, low, high, lazy }: Extract<RegexNode, { kind: 'repeat' }>,
): void {
  for (let i = 0; i < low; i++) emit(program, item);
  const branch = () => {
    const split = { op: 'split' as const, first: program.length + 1, second: program.length + 1 };
    program.push(split);
    return (after: number) => {
      if (lazy) split.first = after;
      else split.second = after;
    };
  };
  if (high === Number.POSITIVE_INFINITY) {
    const start = program.length;
    const close = branch();
    emit(program, item);
    program.push({ op: 'jump', to: start });
    close(program.length);
    return;
  }
  const closes: ((after: number) => void)[] = [];
  for (let i = low; i < high; i++) {
    closes.push(branch());
    emit(program, item);
  }
  for (const close of closes) close(program.length);
}

interface Thread {
  readonly at: number;
  readonly saved: readonly number[];
}

function run(
  program: readonly Instruction[],
  slots: number,
  text: string,
): readonly (string | undefined)[] | null {
  let threads: Thread[] = [];
  const visited = new Int32Array(program.length).fill(-1);
  addThreads(program, threads, visited, { at: 0, saved: new Array<number>(slots).fill(-1) }, 0, text);
  for (let position = 0; position < text.length; position++) {
    if (threads.length === 0) return null;
    const code = text.charCodeAt(position);
    const next: Thread[] = [];
    for (const { at, saved } of threads) {
      const instruction = program[at];
      if (instruction?.op === 'set' && instruction.has[code] === 1)
        addThreads(program, next, visited, { at: at + 1, saved }, position + 1, text);
    }
    threads = next;
  }
  const found = threads.find(({ at }) => program[at]?.op === 'end');
  if (!found) return null;
  const groups: (string | undefined)[] = [text];
  for (let slot = 2; slot < slots; slot += 2) {
    const [from = -1, to = -1] = [found.saved[slot], found.saved[slot + 1]];
    groups.push(from < 0 || to < 0 ? undefined : text.slice(from, to));
  }
  return groups;
}

/** Follows what consumes nothing, in the order of preference. A stack instead of recursion: programs have thousands of steps. */
function addThreads(
  program: readonly Instruction[],
  threads: Thread[],
  visited: Int32Array,
  first: Thread,
  position: number,
  text: string,
): void {
  const stack: Thread[] = [first];
  for (let thread = stack.pop(); thread; thread = stack.pop()) {
    const { at, saved } = thread;
    if (visited[at] === position) continue;
    visited[at] = position;
    const instruction = program[at];
    if (!instruction) continue;
    switch (instruction.op) {
      case 'jump':
        stack.push({ at: instruction.to, saved });
        break;
      case 'split':
        stack.push({ at: instruction.second, saved }, { at: instruction.first, saved });
        break;
      case 'save':
        stack.push({ at: at + 1, saved: saved.with(instruction.slot, position) });
        break;
      case 'assert':
        if (holds(instruction.at, text, position)) stack.push({ at: at + 1, saved });
        break;
      default:
        threads.push(thread);
    }
  }
}

function holds(at: 'start' | 'end' | 'word-edge' | 'no-word-edge', text: string, position: number): boolean {
  if (at === 'start') return position === 0;
  if (at === 'end') return position === text.length;
  const isWord = (index: number) => index >= 0 && index < text.length && /\w/.test(text.charAt(index));
  return (isWord(position - 1) !== isWord(position)) === (at === 'word-edge');
}

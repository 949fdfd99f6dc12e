import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isRootless } from '../cluster/rootless/rootless.ts';
import { hasCode } from '../lib/errors.ts';
import { type Output, processOutput } from './command.ts';
import { COMMANDS } from './commands.ts';
import { keepCompiledCode } from './compile-cache.ts';
import { renderError } from './error-text.ts';
import { definitions, wrapLines } from './help-text.ts';
import { splitProgram, suggestion } from './options.ts';

/** Runs one command line (without "fairlead" itself); resolves to the exit status. */
export async function main(argv: readonly string[], output: Output): Promise<number> {
  const [first = '--help', ...others] = argv;
  const asksForHelp = first === 'help' && others[0] !== undefined;
  const [name = '', ...words] = asksForHelp ? [others[0] ?? '', '--help'] : [first, ...others];
  if (name === '--help' || name === '-h' || name === 'help') {
    output.out(overview());
    return 0;
  }
  if (name === '--version' || name === 'version') {
    const { version } = await import('./version.ts');
    output.out(`fairlead ${version}\n`);
    return 0;
  }
  const entry = COMMANDS.find((candidate) => candidate.name === name);
  if (!entry) {
    const known = COMMANDS.filter(({ internal }) => !internal).map((one) => one.name);
    const what = name.startsWith('-') ? 'option' : 'command';
    output.err(`fairlead: unknown ${what} ${name}${suggestion(name, known)}\n  try: fairlead --help\n`);
    return 2;
  }
  const { command } = await entry.load();
  const { own } = splitProgram(command.syntax, words);
  const end = own.indexOf('--');
  if ((end < 0 ? own : own.slice(0, end)).some((word) => word === '--help' || word === '-h')) {
    output.out(command.help);
    return 0;
  }
  let leave = () => {};
  try {
    if (isRootless()) leave = (await import('./as-user.ts')).arrive();
    else if (process.getuid?.() !== 0) {
      const asUser = command.asUser(words);
      if (asUser !== null) await (await import('./as-user.ts')).enterNamespaces(asUser);
    }
    return await command.run(words, output);
  } catch (error) {
    output.err(wrapLines(renderError(error), output.columns));
    return statusOf(error);
  } finally {
    leave();
  }
}

/** The exit status of a command that Ctrl-C ended, as shells report it. */
const INTERRUPTED = 130;

function statusOf(error: unknown): number {
  if (hasCode(error, 'usage')) return 2;
  return hasCode(error, 'interrupted') ? INTERRUPTED : 1;
}

function overview(): string {
  const rows = COMMANDS.filter(({ internal }) => !internal).map(
    ({ name, summary }) => [name, summary] as const,
  );
  return `Fairlead: Kubernetes networking on this machine, and on the nodes of a cluster.

Usage: fairlead COMMAND [ARGUMENT…]

${definitions(rows)}

Help for one command: fairlead COMMAND --help
Start with: fairlead up -f examples/hello.yaml
`;
}

const COMM = '/proc/self/comm';
/** TASK_COMM_LEN, without the zero at the end (linux/sched.h). */
const MAX_COMM = 15;

/** Returns the name of a process in `top` and `ps -o comm`, for a command: that of all would be Node.js's. */
export function processName(command: string): string {
  const whole = `fairlead ${command}`;
  return whole.length <= MAX_COMM ? whole : `fl-${command}`.slice(0, MAX_COMM);
}

/** Runs this process's command line. */
export async function runMain(): Promise<void> {
  const words = process.argv.slice(2);
  const [command] = words;
  // Of the bundle only: the sources' folder is not for files of a run.
  if (import.meta.filename.endsWith('main.mjs') && COMMANDS.some(({ name }) => name === command)) {
    keepCompiledCode(join(dirname(import.meta.filename), 'compile-cache'), String(command));
  }
  if (COMMANDS.some(({ name }) => name === command) && existsSync(COMM))
    writeFileSync(COMM, processName(String(command)));
  process.exitCode = await main(words, processOutput());
  // Such a command does not wait for its work.
  if (process.exitCode === INTERRUPTED) process.exit();
}

import { DEFAULT_CLUSTER } from '../cluster/state.ts';
import { findContext } from '../cluster/user-contexts.ts';

/** How the learner's shell calls the programs. */
export interface Shell {
  /** The command of this program as the user types it: "./fairlead". */
  readonly program: string;
  /** Null: the default cluster, which commands find by themselves. */
  readonly cluster: string | null;
  /** The context of the cluster in the user's kubeconfig, if it is not the current one. */
  readonly context: string | null;
  readonly isRoot: boolean;
}

/** The width of the terminal that lessons are written for. */
export const COLUMNS = 80;
/** These work with the cluster's kubeconfig, without root rights. */
const WITHOUT_ROOT: ReadonlySet<string> = new Set(['explain', 'flows', 'learn', 'status', 'ui']);

/** Renders a command of a lesson ("fairlead …", "kubectl …") as the learner types it. */
export function typedCommand(command: string, { program, cluster, context, isRoot }: Shell): string {
  const [, name = '', rest = ''] = /^(\S+) ?([\s\S]*)$/.exec(command) ?? [];
  if (name === 'kubectl') return context === null ? command : `kubectl --context ${context} ${rest}`;
  const [, subcommand = '', words = ''] = /^(\S+)([\s\S]*)$/.exec(rest) ?? [];
  const sudo = isRoot || WITHOUT_ROOT.has(subcommand) ? '' : 'sudo ';
  const option = cluster === null ? '' : ` --name ${cluster}`;
  return `${sudo}${program} ${subcommand}${option}${words}`;
}

/**
 * Breaks a command at spaces outside quotes, with backslashes that the shell understands, to lines of at most COLUMNS, and
 * without an indent, so that it can be copied. Commands of several lines stay as they are.
 */
export function shownCommand(command: string): string {
  if (command.includes('\n')) return command;
  const lines: string[] = [];
  for (const word of command.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []) {
    const last = lines.at(-1);
    // Room for " \" at the end.
    if (last === undefined) lines.push(word);
    else if (last.length + 1 + word.length + 2 <= COLUMNS) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(`  ${word}`);
  }
  return lines.join(' \\\n');
}

/** Describes how the user's shell calls fairlead and kubectl for a cluster. */
export function shellOf(cluster: string, environment: Readonly<Record<string, string | undefined>>): Shell {
  const context = findContext(cluster, environment);
  return {
    program: environment['FAIRLEAD_COMMAND'] ?? 'fairlead',
    cluster: cluster === DEFAULT_CLUSTER ? null : cluster,
    context: context === null || context.isCurrent ? null : context.name,
    isRoot: process.getuid?.() === 0,
  };
}

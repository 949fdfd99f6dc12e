import type { Command } from './command.ts';

/** Renders a manual page (man(7)) of all commands from their help texts. */
export function manualPage(
  version: string,
  commands: readonly Pick<Command, 'name' | 'summary' | 'help'>[],
): string {
  return [
    `.TH FAIRLEAD 1 "" "fairlead ${version}" "Fairlead"`,
    '.SH NAME',
    'fairlead \\- Kubernetes networking on this machine, and on the nodes of a cluster',
    '.SH SYNOPSIS',
    '.B fairlead',
    '.I COMMAND',
    '[\\fIARGUMENT\\fR...]',
    '.SH COMMANDS',
    ...commands.flatMap(({ name, summary, help }) => [
      `.SS ${name}`,
      `${quoted(summary)}.`,
      '.PP',
      // As the command prints it: its lines have their own breaks.
      '.nf',
      ...help.trimEnd().split('\n').map(quoted),
      '.fi',
    ]),
    '.SH ENVIRONMENT',
    '.TP',
    '.B FAIRLEAD_CLUSTER',
    'the cluster of commands without \\-\\-name',
    '.TP',
    '.B FAIRLEAD_STATE',
    'the folder of the state of clusters',
    '',
  ].join('\n');
}

/** A line must not begin with a control character, and a backslash begins an escape. */
const quoted = (line: string): string =>
  line
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^(?=[.'])/, '\\&');

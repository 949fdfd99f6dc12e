import { type Command, type CommandEntry, defineCommand } from './command.ts';
import { completionScript, SHELLS } from './completion-script.ts';
import { manualPage } from './manual-page.ts';
import { version } from './version.ts';

/** Defines the command. `all`: the commands of this program's, itself included. */
export const completionOf = (all: readonly CommandEntry[]): Command =>
  defineCommand({
    name: 'completion',
    summary: 'print a script that completes commands, options and names in a shell, or the manual page',
    description: [
      'Prints a script that completes commands, options, their values, and the names of clusters, nodes, pods and Services in a shell. To load it:',
      '  bash: source <(fairlead completion bash)',
      '  zsh:  source <(fairlead completion zsh)',
      '  fish: fairlead completion fish | source',
      'With man, prints the manual page: fairlead completion man > /usr/local/share/man/man1/fairlead.1',
    ],
    arguments: [{ name: 'SHELL', help: '', choices: [...SHELLS, 'man'] }],
    options: {},
    async run({ args: [name] }, output) {
      const shown = all.filter(({ internal }) => !internal);
      if (name === 'man') {
        const pages = await Promise.all(shown.map(async ({ load }) => (await load()).command));
        output.out(manualPage(version, pages));
        return 0;
      }
      const shell = SHELLS.find((one) => one === name) ?? 'bash';
      const commands = await Promise.all(
        shown.map(async ({ summary, load }) => ({ summary, syntax: (await load()).command.syntax })),
      );
      output.out(completionScript(shell, commands));
      return 0;
    },
  });

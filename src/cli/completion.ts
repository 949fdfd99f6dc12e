import { defineCommand } from './command.ts';
import { COMMANDS } from './commands.ts';
import { completionScript, SHELLS } from './completion-script.ts';

export const command = defineCommand({
  name: 'completion',
  summary: 'print a script that completes commands and options in a shell',
  description: [
    'Prints a script that completes commands, options and their values in a shell. To load it:',
    '  bash: source <(fairlead completion bash)',
    '  zsh:  source <(fairlead completion zsh)',
    '  fish: fairlead completion fish | source',
  ],
  arguments: [{ name: 'SHELL', help: '', choices: SHELLS }],
  options: {},
  async run({ args: [name] }, output) {
    const shell = SHELLS.find((one) => one === name) ?? 'bash';
    const shown = COMMANDS.filter(({ internal }) => !internal);
    const commands = await Promise.all(
      shown.map(async ({ summary, load }) => ({ summary, syntax: (await load()).command.syntax })),
    );
    output.out(completionScript(shell, commands));
    return 0;
  },
});

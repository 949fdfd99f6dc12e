import type { Option, Syntax } from './options.ts';

/** The parts of a command that shells complete. */
export interface CompletedCommand {
  readonly summary: string;
  readonly syntax: Pick<Syntax, 'name' | 'options' | 'arguments'>;
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** Renders the script that makes a shell complete commands, options and their choices. */
export function completionScript(shell: Shell, commands: readonly CompletedCommand[]): string {
  switch (shell) {
    case 'bash':
      return bash(commands);
    case 'zsh':
      // zsh runs bash's completion functions.
      return `#compdef fairlead\nautoload -U +X bashcompinit && bashcompinit\n${bash(commands)}`;
    case 'fish':
      return fish(commands);
  }
}

const hasValue = (option: Option) =>
  option.kind !== 'flag' && !(option.kind === 'choice' && option.implied !== undefined);

function bash(commands: readonly CompletedCommand[]): string {
  const words = commands.map(({ syntax: { name, options, arguments: args } }) => {
    const choices = args.flatMap((argument) => argument.choices ?? []);
    return `    ${name}) words="${[...choices, ...Object.keys(options).map((one) => `--${one}`)].join(' ')}" ;;`;
  });
  const values = commands.flatMap(({ syntax: { name, options } }) =>
    Object.entries(options).flatMap(([long, option]) => {
      if (!hasValue(option)) return [];
      const label = `${name}:--${long}${option.short ? `|${name}:-${option.short}` : ''}`;
      if (option.kind === 'choice') return [`    ${label}) words="${option.choices.join(' ')}" ;;`];
      const isFile = 'value' in option && option.value === 'FILE';
      return [`    ${label}) ${isFile ? 'COMPREPLY=($(compgen -f -- "$current"))' : ':'}; return ;;`];
    }),
  );
  return `_fairlead() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${['help', ...commands.map(({ syntax }) => syntax.name)].join(' ')}" -- "$current"))
    return
  fi
  case "\${COMP_WORDS[1]}:$previous" in
${values.join('\n')}
  esac
  if [ -z "$words" ]; then
    case "\${COMP_WORDS[1]}" in
    help) words="${commands.map(({ syntax }) => syntax.name).join(' ')}" ;;
${words.join('\n')}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _fairlead fairlead
`;
}

function fish(commands: readonly CompletedCommand[]): string {
  const quoted = (text: string) => `'${text.replace(/(['\\])/g, '\\$1')}'`;
  const lines = commands.flatMap(({ summary, syntax: { name, options, arguments: args } }) => {
    const within = `complete -c fairlead -n '__fish_seen_subcommand_from ${name}'`;
    const choices = args.flatMap((argument) => argument.choices ?? []);
    return [
      `complete -c fairlead -f -n __fish_use_subcommand -a ${name} -d ${quoted(summary)}`,
      ...(choices.length > 0 ? [`${within} -f -a ${quoted(choices.join(' '))}`] : []),
      ...Object.entries(options).map(([long, option]) => {
        const letter = option.short ? ` -s ${option.short}` : '';
        const value = option.kind === 'choice' ? ` -x -a ${quoted(option.choices.join(' '))}` : ' -r';
        return `${within} -l ${long}${letter}${hasValue(option) ? value : ''} -d ${quoted(option.help)}`;
      }),
    ];
  });
  return `${lines.join('\n')}\n`;
}

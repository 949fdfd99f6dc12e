import type { NameKind } from './names.ts';
import type { Argument, Option, Syntax } from './options.ts';

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

/** Which names of the cluster an argument or the value of an option may be, by its placeholder. */
function kindOfArgument({ name, choices }: Argument): NameKind | null {
  if (choices) return null;
  if (/^svc\//.test(name)) return 'services';
  if (/^(TO|TARGET)$/.test(name)) return 'targets';
  if (/^FROM$|node\/NAME/.test(name)) return 'places';
  return /^POD\b/.test(name) ? 'pods' : null;
}

function kindOfOption(name: string, option: Option): NameKind | null {
  if (name === 'name') return 'clusters';
  return 'value' in option && option.value === 'NODE' ? 'nodes' : null;
}

/** A script completes the names of any argument of the command. */
const kindOfCommand = (args: readonly Argument[]): NameKind | null =>
  args.map(kindOfArgument).find((kind) => kind === 'targets') ??
  args.map(kindOfArgument).find((kind) => kind !== null) ??
  null;

const hasValue = (option: Option) =>
  option.kind !== 'flag' && !(option.kind === 'choice' && option.implied !== undefined);

function bash(commands: readonly CompletedCommand[]): string {
  const words = commands.map(({ syntax: { name, options, arguments: args } }) => {
    const choices = args.flatMap((argument) => argument.choices ?? []);
    const words = [...choices, ...Object.keys(options).map((one) => `--${one}`)].join(' ');
    const kind = kindOfCommand(args);
    return `    ${name}) words="${words}"${kind === null ? '' : `; names ${kind}`} ;;`;
  });
  const values = commands.flatMap(({ syntax: { name, options } }) =>
    Object.entries(options).flatMap(([long, option]) => {
      if (!hasValue(option)) return [];
      const label = `${name}:--${long}${option.short ? `|${name}:-${option.short}` : ''}`;
      if (option.kind === 'choice') return [`    ${label}) words="${option.choices.join(' ')}" ;;`];
      const kind = kindOfOption(long, option);
      if (kind !== null) return [`    ${label}) names ${kind} ;;`];
      const isFile = 'value' in option && option.value === 'FILE';
      return [`    ${label}) ${isFile ? 'COMPREPLY=($(compgen -f -- "$current"))' : ':'}; return ;;`];
    }),
  );
  return `_fairlead() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words="" cluster="" i
  for ((i = 1; i < COMP_CWORD - 1; i++)); do
    [ "\${COMP_WORDS[i]}" = --name ] && cluster="\${COMP_WORDS[i+1]}"
  done
  names() {
    case "$current" in -*) return ;; esac
    words="$words $(FAIRLEAD_CLUSTER="\${cluster:-$FAIRLEAD_CLUSTER}" timeout 5 "\${COMP_WORDS[0]}" names "$1" 2>/dev/null)"
  }
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
    const kind = kindOfCommand(args);
    return [
      `complete -c fairlead -f -n __fish_use_subcommand -a ${name} -d ${quoted(summary)}`,
      ...(choices.length > 0 ? [`${within} -f -a ${quoted(choices.join(' '))}`] : []),
      ...(kind === null ? [] : [`${within} -f -a '(fairlead names ${kind} 2>/dev/null)'`]),
      ...Object.entries(options).map(([long, option]) => {
        const letter = option.short ? ` -s ${option.short}` : '';
        const names = kindOfOption(long, option);
        const value =
          option.kind === 'choice'
            ? ` -x -a ${quoted(option.choices.join(' '))}`
            : names === null
              ? ' -r'
              : ` -x -a '(fairlead names ${names} 2>/dev/null)'`;
        return `${within} -l ${long}${letter}${hasValue(option) ? value : ''} -d ${quoted(option.help)}`;
      }),
    ];
  });
  return `${lines.join('\n')}\n`;
}

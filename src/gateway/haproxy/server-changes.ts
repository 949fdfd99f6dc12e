import { type Endpoint, type Section, serverAddress, serverName } from './rendering.ts';

/** The servers of one section in the running proxy: in use, or in maintenance with connections that have not ended. */
export interface SectionServers {
  readonly used: Set<string>;
  readonly parked: Set<string>;
}

/** Returns the runtime API's commands that give a section these endpoints, and updates `servers` as if all had succeeded. */
export function serverChanges(
  { name: section, serverWords }: Section,
  { used, parked }: SectionServers,
  endpoints: readonly Endpoint[],
): string[] {
  const wanted = new Map(endpoints.map((one) => [serverName(one), one]));
  const commands: string[] = [];
  for (const [name, endpoint] of wanted) {
    if (used.has(name)) continue;
    const place = `${section}/${name}`;
    if (parked.delete(name)) commands.push(`set server ${place} state ready`);
    else
      commands.push(`add server ${place} ${serverAddress(endpoint)}${serverWords}`, `enable server ${place}`);
    used.add(name);
  }
  for (const name of used) {
    if (wanted.has(name)) continue;
    commands.push(`set server ${section}/${name} state maint`);
    used.delete(name);
    parked.add(name);
  }
  return commands;
}

/** HAProxy reads at most one buffer of commands at once. */
const MAX_LINE = 12_000;

/** Joins commands to lines that the proxy reads at once. */
export function commandLines(commands: readonly string[]): string[] {
  const lines: string[] = [];
  for (const command of commands) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + command.length < MAX_LINE)
      lines[lines.length - 1] = `${last};${command}`;
    else lines.push(command);
  }
  return lines;
}

/** Returns what an answer to such a line complains about; null: all commands succeeded. */
export function complaint(answer: string): string | null {
  const left = answer
    .split('\n')
    .filter((line) => line.trim() !== '' && line.trim() !== 'New server registered.');
  return left.length === 0 ? null : left.join('; ').slice(0, 500);
}

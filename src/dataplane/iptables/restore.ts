import { type NetnsRef, spawnInNetns } from '../../kernel/netns.ts';
import type { IPFamily } from '../../lib/address.ts';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import type { Hook } from './base-chains.ts';
import { isOwnChain, TABLES, type Table } from './chain-names.ts';
import type { Rule } from './rule.ts';

/** The kernel interface of the command; "auto": that of the machine's `iptables`. */
export type Variant = 'auto' | 'legacy' | 'nft';

/** The commands of one family and their network namespace. */
export interface Tool {
  readonly family: IPFamily;
  readonly variant: Variant;
  /** Default: the namespace of this process. */
  readonly netns?: NetnsRef | undefined;
  /** Called with the process id of each command that changes rules, to recognise its events. */
  readonly onProcess?: ((pid: number) => void) | undefined;
}

/** This mode's chains and the rules of the built-in chains, as read from the kernel. */
export interface LiveTable {
  readonly chains: Map<string, Rule[]>;
  readonly builtin: Map<string, Rule[]>;
}

export function command({ family, variant }: Tool, verb: '' | '-restore' | '-save'): string {
  const middle = variant === 'auto' ? '' : `-${variant}`;
  return `${family === 'ipv4' ? 'iptables' : 'ip6tables'}${middle}${verb}`;
}

/** Reads both tables. Throws FairleadError if the command is missing or fails. */
export async function readTables(tool: Tool): Promise<Record<Table, LiveTable>> {
  const [nat, filter] = await Promise.all([readTable(tool, 'nat'), readTable(tool, 'filter')]);
  return { nat, filter };
}

/** Reads a table by iptables-save. */
export async function readTable(tool: Tool, table: Table): Promise<LiveTable> {
  const live: LiveTable = { chains: new Map(), builtin: new Map() };
  parseSave(await run(tool, command(tool, '-save'), ['-t', table], null), live);
  return live;
}

/** A rule of the filter table, by options that no other rule of its chain has. */
export interface CountedRule {
  readonly chain: string;
  readonly options: string;
}

/** Reads the packets of a rule of the filter table by iptables; 0 if the chain has no such rule. */
export async function readPackets(tool: Tool, { chain, options }: CountedRule): Promise<number> {
  const listed = await run(tool, command(tool, ''), ['--wait', '5', '-v', '-S', chain], null);
  const line = listed.split('\n').find((one) => one.includes(` ${options} `));
  return Number(/ -c (\d+) \d+ /.exec(line ?? '')?.[1] ?? 0);
}

/** Parses one table of iptables-save's output; keeps this mode's chains and the built-in ones. */
export function parseSave(text: string, table: LiveTable): void {
  for (let from = 0; from < text.length; ) {
    const newline = text.indexOf('\n', from);
    const end = newline < 0 ? text.length : newline;
    if (text[from] === ':') {
      const name = text.slice(from + 1, text.indexOf(' ', from));
      if (isOwnChain(name)) table.chains.set(name, []);
      else if (/^[A-Z]+ [A-Z]/.test(text.slice(from + 1, end))) table.builtin.set(name, []);
    } else if (text.startsWith('-A ', from)) {
      const space = text.indexOf(' ', from + 3);
      const name = text.slice(from + 3, space);
      (table.chains.get(name) ?? table.builtin.get(name))?.push(text.slice(space + 1, end));
    }
    from = end + 1;
  }
}

/** One table's part of a restore. */
export interface TableInput {
  readonly written: ReadonlyMap<string, readonly Rule[]>;
  readonly deleted: readonly string[];
  /** Hooks to insert at the head of their chains, in this order. */
  readonly hooks: readonly Hook[];
  /** Rules to delete from the built-in chains. */
  readonly unhooked: readonly { readonly chain: string; readonly rule: Rule }[];
}

export const NOTHING: TableInput = { written: new Map(), deleted: [], hooks: [], unhooked: [] };

/** Returns the number of rules that a change writes and deletes, with deleted chains. */
export function lineCount(tables: Readonly<Record<Table, readonly TableInput[]>>): number {
  let lines = 0;
  for (const { written, deleted, hooks, unhooked } of TABLES.flatMap((table) => tables[table])) {
    lines += deleted.length + hooks.length + unhooked.length;
    for (const rules of written.values()) lines += rules.length;
  }
  return lines;
}

/** Renders the input of iptables-restore --noflush; empty if nothing changes. */
export function restoreInput(tables: Readonly<Record<Table, readonly TableInput[]>>): string {
  const parts: string[] = [];
  for (const table of TABLES) for (const input of tables[table]) writeTable(table, input, parts);
  return parts.length === 0 ? '' : `${parts.join('\n')}\n`;
}

function writeTable(table: Table, { written, deleted, hooks, unhooked }: TableInput, parts: string[]): void {
  if (written.size + deleted.length + hooks.length + unhooked.length === 0) return;
  // iptables-legacy-restore keeps the chains in a sorted list: in this order it takes three quarters of the time.
  const sorted = [...written].sort(([a], [b]) => (a < b ? -1 : 1));
  parts.push(`*${table}`);
  // Naming a chain creates it or, under --noflush, empties it.
  for (const [chain] of sorted) parts.push(`:${chain} - [0:0]`);
  for (const chain of deleted) if (!written.has(chain)) parts.push(`:${chain} - [0:0]`);
  for (const { chain, rule } of unhooked) parts.push(`-D ${chain} ${rule}`);
  for (const { chain, rule } of hooks.toReversed()) parts.push(`-I ${chain} 1 ${rule}`);
  for (const [chain, rules] of sorted) {
    for (const rule of rules) parts.push(`-A ${chain} ${rule}`);
  }
  for (const chain of deleted) if (!written.has(chain)) parts.push(`-X ${chain}`);
  parts.push('COMMIT');
}

/** Applies a restore, atomically for each table. Throws FairleadError with the offending line. */
export async function restore(tool: Tool, input: string): Promise<void> {
  // The legacy variant shares a lock with other users of iptables.
  const args = ['--noflush', '--counters', '--wait', '5'];
  try {
    await run(tool, command(tool, '-restore'), args, input);
  } catch (error) {
    const line = /line:? (\d+)/.exec(messageOf(error))?.[1];
    if (!(error instanceof FairleadError) || line === undefined) throw error;
    throw new FairleadError(error.message, {
      op: error.op,
      code: error.code,
      object: input.split('\n')[Number(line) - 1] ?? `line ${line}`,
      cause: error,
    });
  }
}

/** Runs a command to its end and returns its output. */
function run(tool: Tool, file: string, args: readonly string[], input: string | null): Promise<string> {
  const failed = (message: string, code: string, hint?: string, cause?: unknown) =>
    new FairleadError(`${file}: ${message}`, {
      op: 'program iptables',
      code: errorCode(code),
      ...(hint === undefined ? {} : { hint }),
      cause,
    });
  return new Promise((resolve, reject) => {
    const child = spawnInNetns(tool.netns, file, args, { stdio: 'pipe' });
    if (input !== null && child.pid !== undefined) tool.onProcess?.(child.pid);
    const output: Buffer[] = [];
    const errors: Buffer[] = [];
    child.stdout?.on('data', (chunk: Buffer) => output.push(chunk));
    child.stderr?.on('data', (chunk: Buffer) => errors.push(chunk));
    child.once('error', (error: NodeJS.ErrnoException) =>
      reject(
        error.code === 'ENOENT'
          ? failed('the command is not installed', 'ENOENT', 'install the package "iptables"', error)
          : failed(error.message, error.code ?? 'EIO', undefined, error),
      ),
    );
    child.once('close', (status, signal) => {
      if (status === 0) resolve(Buffer.concat(output).toString('latin1'));
      else {
        const text = Buffer.concat(errors).toString().trim();
        reject(failed(text || `ended with ${signal ?? `status ${status}`}`, 'iptables-failed'));
      }
    });
    // A command that fails early closes its input; its exit status is reported.
    child.stdin?.on('error', () => {});
    child.stdin?.end(input ?? '');
  });
}

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { promisify } from 'node:util';
import { NftConnection } from '../kernel/nftables/connection.ts';
import { findProgram } from '../kernel/program-path.ts';
import { existingTables } from '../kernel/xtables-info.ts';
import type { IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';

export const COMMANDS = ['iptables', 'ip6tables'] as const;
export const VARIANTS = ['nft', 'legacy'] as const;
export type Command = (typeof COMMANDS)[number];
export type Variant = (typeof VARIANTS)[number];

/** linux/netfilter.h */
export const NFPROTO_IPV4 = 2;
export const NFPROTO_IPV6 = 10;

const MAX_OUTPUT = 1 << 30;
const QUOTED = /"(?:[^"\\]|\\.)*"/g;

/** Chains of one table, in one variant and family of iptables. */
export interface FoundChains {
  readonly variant: Variant;
  readonly command: Command;
  readonly table: string;
  readonly chains: ReadonlySet<string>;
}

/** Finds the chains of iptables in both variants and families. `wanted`: the names by table. */
export async function findChains(wanted: Readonly<Record<string, RegExp>>): Promise<FoundChains[]> {
  const found: FoundChains[] = [];
  for (const variant of VARIANTS) {
    if (!isInUse(variant)) continue;
    for (const command of COMMANDS) {
      for (const [table, names] of Object.entries(wanted)) {
        const chains = (await chainsOf(variant, command, table)).filter((name) => names.test(name));
        if (chains.length > 0) found.push({ variant, command, table, chains: new Set(chains) });
      }
    }
  }
  return found;
}

/** Removes chains and the rules of other chains that jump to them, atomically for each table. */
export async function removeChains(found: readonly FoundChains[]): Promise<void> {
  for (const { variant, command, table, chains } of found) {
    const saved = await save(variant, command, table);
    await restore(`${command}-${variant}-restore`, removalOf(saved, table, chains));
  }
}

/** Removes the rules of a table that match, in both variants and families. */
export async function removeRules(table: string, pattern: RegExp): Promise<void> {
  for (const variant of VARIANTS) {
    if (!isInUse(variant)) continue;
    for (const command of COMMANDS) {
      if (!existsCommand(`${command}-${variant}`) || !hasTable(variant, command, table)) continue;
      const rules = (await save(variant, command, table))
        .split('\n')
        .flatMap((line) => (line.startsWith('-A ') && pattern.test(line) ? [`-D ${line.slice(3)}`] : []));
      if (rules.length > 0)
        await restore(`${command}-${variant}-restore`, [`*${table}`, ...rules, 'COMMIT', ''].join('\n'));
    }
  }
}

function hasTable(variant: Variant, command: Command, table: string): boolean {
  if (variant === 'legacy') return legacyTables(command).includes(table);
  const connection = new NftConnection();
  try {
    return connection.tables(protocolOf(command)).some(({ name }) => name === table);
  } finally {
    connection.close();
  }
}

export const protocolOf = (command: Command): number =>
  command === 'iptables' ? NFPROTO_IPV4 : NFPROTO_IPV6;

/** Renders the input of iptables-restore that removes chains, from the table's text as iptables-save prints it. */
export function removalOf(saved: string, table: string, chains: ReadonlySet<string>): string {
  const jumps = saved.split('\n').flatMap((line) => {
    const [, chain = '', rule = ''] = /^-A (\S+) (.*)$/.exec(line) ?? [];
    // A comment may contain anything.
    const target = / (?:-j|-g) (\S+)/.exec(` ${rule.replace(QUOTED, '""')}`)?.[1] ?? '';
    return chains.has(target) && !chains.has(chain) ? [`-D ${chain} ${rule}`] : [];
  });
  const names = [...chains];
  return [
    `*${table}`,
    // Under --noflush, naming a chain empties it.
    ...names.map((name) => `:${name} - [0:0]`),
    ...jumps,
    ...names.map((name) => `-X ${name}`),
    'COMMIT',
    '',
  ].join('\n');
}

/** Returns the names of a table's chains. The nft variant is read without its tools, which would create tables. */
export async function chainsOf(variant: Variant, command: Command, table: string): Promise<string[]> {
  if (variant === 'nft') {
    const connection = new NftConnection();
    try {
      return connection.chains(protocolOf(command), table);
    } finally {
      connection.close();
    }
  }
  if (!existsCommand(`${command}-legacy`) || !legacyTables(command).includes(table)) return [];
  return [...(await save(variant, command, table)).matchAll(/^:(\S+) -/gm)].map(([, chain = '']) => chain);
}

/**
 * Returns the rules of a chain as texts that contain the chains that they jump to: of the legacy variant as iptables-save
 * prints them, of the nft variant as the kernel's messages, since its tools would create the table. Empty: there is no such
 * chain, or it has no rules.
 */
export async function rulesOf(
  variant: Variant,
  command: Command,
  table: string,
  chain: string,
): Promise<string[]> {
  if (variant === 'nft') {
    const connection = new NftConnection();
    try {
      if (!connection.chains(protocolOf(command), table).includes(chain)) return [];
      const rules = connection.rules(protocolOf(command), table, chain).get(chain) ?? [];
      return rules.map((message) => Buffer.from(message).toString('latin1'));
    } finally {
      connection.close();
    }
  }
  if (!existsCommand(`${command}-legacy`) || !legacyTables(command).includes(table)) return [];
  return (await save(variant, command, table)).split('\n').filter((line) => line.startsWith(`-A ${chain} `));
}

async function save(variant: Variant, command: Command, table: string): Promise<string> {
  const { stdout } = await promisify(execFile)(`${command}-${variant}-save`, ['-t', table], {
    maxBuffer: MAX_OUTPUT,
  });
  return stdout;
}

async function restore(file: string, input: string): Promise<void> {
  const child = spawn(file, ['--noflush', '--wait', '5'], { stdio: ['pipe', 'ignore', 'pipe'] });
  let message = '';
  child.stderr.on('data', (chunk) => {
    message += String(chunk);
  });
  // A command that fails early closes its input; its exit status is reported.
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const [status] = (await once(child, 'close')) as [number | null];
  if (status === 0) return;
  throw new FairleadError(`${file}: ${message.trim() || `exited with status ${status}`}`, {
    op: 'remove chains of another proxy',
    code: 'ended',
  });
}

/** Reading a legacy table would create it: only existing ones are read. */
export function isInUse(variant: Variant): boolean {
  return variant === 'nft' || COMMANDS.some((command) => legacyTables(command).length > 0);
}

const legacyTables = (command: Command): string[] => existingTables(familyOf(command));

export const familyOf = (command: Command): IPFamily => (command === 'iptables' ? 'ipv4' : 'ipv6');

export const existsCommand = (command: string): boolean => findProgram(command) !== null;

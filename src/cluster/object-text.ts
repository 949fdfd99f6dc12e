import { execFile } from 'node:child_process';
import { pinPathOf } from '../dataplane/ebpf/pins.ts';
import { inNetns } from '../kernel/netns.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import { readEntryQuestion, readEntryText } from '../modes/bpf-entry-text.ts';
import { nodeNetns } from '../network/topology.ts';
import { cgroupParent } from './processes.ts';
import type { ClusterState } from './state.ts';

/** Which kernel object, in the words of explain ("nft: table ip fairlead, chain …"), of which node. */
export interface ObjectQuestion {
  readonly node: string;
  readonly object: string;
}

/** The text of an object by the tools on its node: the commands and their output; of BPF map entries, decoded. */
export interface ObjectText {
  readonly text: string;
  /** The text was longer. */
  readonly isCut: boolean;
}

const MAX_TEXT = 16 << 10;
const MAX_OUTPUT = 4 << 20;
const PATIENCE_MS = 5000;
const MAX_WORDS = 1000;
/** The slots of a map that are printed. */
const MAX_KEYS = 64;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Reads a question from JSON: {node, object}. Throws FairleadError. */
export function readObjectQuestion(value: unknown): ObjectQuestion {
  const { node, object } = (value ?? {}) as Record<string, unknown>;
  if (typeof node === 'string' && typeof object === 'string' && object.length <= MAX_WORDS)
    return { node, object };
  throw new FairleadError('node and object must be strings', { op: 'read an object', code: 'BadRequest' });
}

/**
 * Returns the commands that print a kernel object: an element of a map and the last chain, as far as the object names them.
 * Empty: no tool prints it. nft parses its arguments as one text: names and keys have none of its punctuation.
 */
export function objectCommands(object: string): string[][] {
  return nftCommands(object) ?? iptablesCommands(object) ?? otherCommands(object);
}

function nftCommands(object: string): string[][] | null {
  const [, family, table, rest = ''] = /^nft: table (ip6?) ([\w-]+)(?:, (.*))?$/.exec(object) ?? [];
  if (!family || !table) return null;
  const [, map, key] = /\bmap ([\w-]+)(?:, elements? ([\w.:/ -]+))?$/.exec(rest) ?? [];
  const chain = [...rest.matchAll(/\bchain ([\w-]+)/g)].at(-1)?.[1];
  const commands: string[][] = [];
  if (map && key)
    commands.push(['nft', 'get', 'element', family, table, map, `{ ${keysOf(key).join(', ')} }`]);
  else if (map) commands.push(['nft', 'list', 'map', family, table, map]);
  if (chain) commands.push(['nft', 'list', 'chain', family, table, chain]);
  return commands.length > 0 ? commands : [['nft', 'list', 'table', family, table]];
}

/** Returns the keys of "10.96.0.1 . tcp . 80 . 0 to 2": the last part is a range of slots. */
function keysOf(text: string): string[] {
  const [, start = '', first, last] = /^(.* \. )(\d+) to (\d+)$/.exec(text) ?? [];
  if (first === undefined || last === undefined) return [text];
  const count = Math.min(Number(last) - Number(first) + 1, MAX_KEYS);
  return Array.from({ length: count }, (_, i) => `${start}${Number(first) + i}`);
}

function iptablesCommands(object: string): string[][] | null {
  const [, tool, table, chain] = /^(ip6?tables) -t (\w+) chain ([A-Z][\w-]*)/.exec(object) ?? [];
  return tool && table && chain ? [[tool, '-t', table, '-S', chain]] : null;
}

function otherCommands(object: string): string[][] {
  const [, mark] = /^ipvsadm: virtual server FWM (\d+)/.exec(object) ?? [];
  if (mark) return [['ipvsadm', '-Ln', '-f', mark, ...(object.endsWith(' IPv6') ? ['-6'] : [])]];
  const [, protocol, server] = /^ipvsadm: virtual server (TCP|UDP|SCTP) ([\w.:[\]]+)/.exec(object) ?? [];
  const option = { TCP: '-t', UDP: '-u', SCTP: '--sctp-service' }[protocol ?? ''];
  if (option && server) return [['ipvsadm', '-Ln', option, server]];
  const [, address, device] = /^ip: address ([\da-f.:]+) of ([\w-]+)/.exec(object) ?? [];
  if (address && device) return [['ip', '-o', 'address', 'show', 'dev', device, 'to', address]];
  const [, socket, port] = /^fairlead: listener (tcp|udp) \S+:(\d+) /.exec(object) ?? [];
  return port ? [['ss', socket === 'tcp' ? '-ltnpH' : '-lunpH', `sport = :${port}`]] : [];
}

/**
 * Prints an object as its tools do on a node. BPF map entries are read and decoded here: bpftool prints their bytes. Throws
 * FairleadError if there is no such node, tool or object.
 */
export async function readObjectText(
  state: ClusterState,
  { node, object }: ObjectQuestion,
): Promise<ObjectText> {
  if (!state.nodes.some(({ name }) => name === node))
    throw new FairleadError(`no such node: ${node}`, { op: 'read an object', code: 'no-node' });
  const entries = readEntryQuestion(object);
  if (entries) return cut(readEntryText(pinPathOf(cgroupParent(state.name, node)), entries));
  const commands = objectCommands(object);
  if (commands.length === 0)
    throw new FairleadError(`no tool prints ${object}`, { op: 'read an object', code: 'bad-state' });
  const texts: string[] = [];
  for (const command of commands) texts.push(`# ${command.join(' ')}\n${await run(state, node, command)}`);
  return cut(texts.join('\n').trimEnd());
}

const cut = (text: string): ObjectText => ({ text: text.slice(0, MAX_TEXT), isCut: text.length > MAX_TEXT });

async function run(state: ClusterState, node: string, [tool = '', ...args]: string[]): Promise<string> {
  const options = { env: { ...process.env, PATH }, timeout: PATIENCE_MS, maxBuffer: MAX_OUTPUT };
  try {
    return await new Promise<string>((resolve, reject) => {
      inNetns(nodeNetns(state.name, node), () => {
        execFile(tool, args, options, (error, out) => (error ? reject(error) : resolve(out)));
      });
    });
  } catch (error) {
    const isMissing = hasCode(error, 'ENOENT');
    throw new FairleadError(
      isMissing
        ? `${tool} is not installed on this machine`
        : `failed to read the object: ${messageOf(error)}`,
      {
        op: 'read an object',
        code: isMissing ? 'ENOENT' : 'EIO',
        cause: error,
        ...(isMissing ? { hint: `install ${tool}: it prints the kernel's objects` } : {}),
      },
    );
  }
}

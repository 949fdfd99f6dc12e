import { closeSync, fstatSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode, isDiskFull } from '../lib/errors.ts';
import type { HostPort } from './host-ports.ts';

/** The addresses of a pod. */
export interface AddressRecord {
  readonly uid: string;
  /** "namespace/name", for people reading the file. */
  readonly pod: string;
  readonly ips: readonly string[];
  /** Ports of the node that lead to the pod; absent: none. */
  readonly hostPorts?: readonly HostPort[];
}

/** What the file's lines say, in the order of events. */
type Line = { readonly take: AddressRecord } | { readonly free: string };

/** The file is rewritten when it has this many lines more than records. */
const SLACK = 1000;

/**
 * A file of pod addresses taken and freed, one JSON line an event, appended to. It survives the agent's death: a line
 * cut off by it is passed over. It need not survive the machine's: neither do the pods, and nothing is synced. On a full
 * disk addresses cannot be taken; they can be freed, which is written down once there is room.
 */
export class AddressJournal {
  readonly #file: string;
  #fd: number;
  #lines = 0;
  /** Text that a full disk did not take. */
  #unwritten = '';
  readonly #records = new Map<string, AddressRecord>();
  /** The addresses last given out, kept when their record is gone: the turn goes on behind them. */
  #last: AddressRecord | null = null;

  constructor(file: string) {
    this.#file = file;
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    const text = readText(file);
    for (const line of parseLines(text)) this.#apply(line);
    this.#fd = openSync(file, 'a', 0o600);
    if (text !== '' && !text.endsWith('\n')) this.#unwritten = '\n';
    this.#rewrite();
  }

  /** Records, oldest first. */
  get records(): ReadonlyMap<string, AddressRecord> {
    return this.#records;
  }

  /** The addresses given out last, whether or not they are in use still. */
  get last(): AddressRecord | null {
    return this.#last;
  }

  take(record: AddressRecord): void {
    this.#append({ take: record });
  }

  free(uid: string): void {
    if (this.#records.has(uid)) this.#append({ free: uid });
  }

  close(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }

  #append(line: Line): void {
    const text = `${this.#unwritten}${JSON.stringify(line)}\n`;
    try {
      this.#write(text);
      this.#unwritten = '';
    } catch (error) {
      if (!('free' in line && isDiskFull(error))) throw error;
      this.#unwritten = text;
    }
    this.#apply(line);
    if (this.#lines > this.#records.size + SLACK) this.#rewrite();
  }

  /** Appends all of a text, or throws and appends nothing. */
  #write(text: string): void {
    const { size } = fstatSync(this.#fd);
    const bytes = Buffer.from(text);
    let cause: unknown;
    try {
      if (writeSync(this.#fd, bytes) === bytes.length) return;
    } catch (error) {
      cause = error;
    }
    ftruncateSync(this.#fd, size);
    if (cause !== undefined && !isDiskFull(cause)) throw cause;
    throw new FairleadError(`failed to write down a pod's addresses: the disk of ${this.#file} is full`, {
      op: 'take addresses',
      code: 'ENOSPC',
      object: this.#file,
      hint: 'free space on this disk',
      cause,
    });
  }

  #apply(line: Line): void {
    this.#lines++;
    if ('take' in line) {
      this.#records.delete(line.take.uid);
      this.#records.set(line.take.uid, line.take);
      this.#last = line.take;
    } else {
      this.#records.delete(line.free);
    }
  }

  /** Rewrites the file without ended records; on a full disk the file stays as it is. */
  #rewrite(): void {
    const lines: Line[] = [...this.#records.values()].map((take) => ({ take }));
    const last = this.#last;
    if (last && !this.#records.has(last.uid)) lines.push({ take: last }, { free: last.uid });
    try {
      replaceFile(this.#file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    } catch (error) {
      if (isDiskFull(error)) return;
      throw error;
    }
    closeSync(this.#fd);
    this.#fd = openSync(this.#file, 'a', 0o600);
    this.#lines = lines.length;
    this.#unwritten = '';
  }
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

function parseLines(text: string): Line[] {
  return text.split('\n').flatMap((line) => {
    try {
      const value: unknown = JSON.parse(line);
      return isLine(value) ? [value] : [];
    } catch {
      return [];
    }
  });
}

function isLine(value: unknown): value is Line {
  const line = value as { take?: Partial<AddressRecord>; free?: unknown } | null;
  if (typeof line?.free === 'string') return true;
  return typeof line?.take?.uid === 'string' && Array.isArray(line.take.ips);
}

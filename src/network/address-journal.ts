import { closeSync, mkdirSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { hasCode } from '../lib/errors.ts';
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
 * cut off by it is passed over. It need not survive the machine's: neither do the pods, and nothing is synced.
 */
export class AddressJournal {
  readonly #file: string;
  #fd: number;
  #lines = 0;
  readonly #records = new Map<string, AddressRecord>();
  /** The addresses last given out, kept when their record is gone: the turn goes on behind them. */
  #last: AddressRecord | null = null;

  constructor(file: string) {
    this.#file = file;
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    for (const line of readLines(file)) this.#apply(line);
    this.#fd = this.#rewrite();
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
    writeSync(this.#fd, `${JSON.stringify(line)}\n`);
    this.#apply(line);
    if (this.#lines > this.#records.size + SLACK) {
      closeSync(this.#fd);
      this.#fd = this.#rewrite();
    }
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

  /** Rewrites the file without ended records, and opens it for appending. */
  #rewrite(): number {
    const lines: Line[] = [...this.#records.values()].map((take) => ({ take }));
    const last = this.#last;
    if (last && !this.#records.has(last.uid)) lines.push({ take: last }, { free: last.uid });
    const temporary = `${this.#file}.new`;
    writeFileSync(temporary, lines.map((line) => `${JSON.stringify(line)}\n`).join(''), { mode: 0o600 });
    renameSync(temporary, this.#file);
    this.#lines = lines.length;
    return openSync(this.#file, 'a', 0o600);
  }
}

function readLines(file: string): Line[] {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return [];
    throw error;
  }
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

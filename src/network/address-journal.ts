import { closeSync, fstatSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { replaceFile } from '../kernel/replace-file.ts';
import { FairleadError, hasCode, isDiskFull } from '../lib/errors.ts';
import type { HostPort } from './host-ports.ts';

/** The addresses of a pod. */
export interface AddressRecord {
  readonly uid: string;
  /** "namespace/name", for people who read the file. */
  readonly pod: string;
  readonly ips: readonly string[];
  /** Host ports of the pod; absent: none. */
  readonly hostPorts?: readonly HostPort[];
}

/** The contents of the file's lines, in the order of events. */
type Line = { readonly take: AddressRecord } | { readonly free: string };

/** The file is rewritten when its lines exceed its records by this number. */
const SLACK = 1000;

/**
 * An append-only file of allocated and released pod addresses, one JSON line per event. It survives a crash
 * of the agent: a truncated line is skipped. It is not synced, since pods do not survive a reboot either.
 * On a full disk addresses cannot be allocated, but they can be released; releases are written once there
 * is room.
 */
export class AddressJournal {
  readonly #file: string;
  #fd: number;
  #lines = 0;
  /** Text that could not be written to a full disk. */
  #unwritten = '';
  readonly #records = new Map<string, AddressRecord>();
  /** The last allocated addresses, kept after their record is removed: the next allocation continues after them. */
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

  /** The last allocated addresses, even if they have been released. */
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
    throw new FairleadError(`failed to record a pod's addresses: the disk of ${this.#file} is full`, {
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

  /** Rewrites the file without released records; on a full disk the file is unchanged. */
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

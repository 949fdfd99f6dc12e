import { FairleadError } from '../../lib/errors.ts';

export type TarEntryType = 'file' | 'link' | 'symlink' | 'character' | 'block' | 'directory' | 'fifo';

/** One entry of a tar archive. `body` is read, or skipped by asking for the next entry. */
export interface TarEntry {
  readonly path: string;
  readonly type: TarEntryType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Seconds since 1970. */
  readonly mtime: number;
  readonly size: number;
  readonly linkPath: string;
  readonly device: { readonly major: number; readonly minor: number };
  readonly body: AsyncIterable<Uint8Array>;
}

const BLOCK = 512;
/** Extended headers are read into memory: an archive must not say how much. */
const MOST_HEADER_BYTES = 1 << 20;

const TYPES: Readonly<Record<string, TarEntryType>> = {
  '\0': 'file',
  '0': 'file',
  '7': 'file',
  '1': 'link',
  '2': 'symlink',
  '3': 'character',
  '4': 'block',
  '5': 'directory',
  '6': 'fifo',
};

/** Reads a tar archive (POSIX ustar and pax, GNU long names) to its end. Throws FairleadError "bad-archive". */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const bytes = byteSource(source);
  let global: Readonly<Record<string, string>> = {};
  let next: Record<string, string> = {};
  for (;;) {
    const header = await bytes.exactly(BLOCK, true);
    // Two blocks of zeros end an archive; some writers leave them out.
    if (!header || header.every((byte) => byte === 0)) break;
    checkSum(header);
    const flag = String.fromCharCode(header[156] ?? 0);
    const size = number(header, 124, 12);
    const padding = (BLOCK - (size % BLOCK)) % BLOCK;
    if ('xgLK'.includes(flag)) {
      if (size > MOST_HEADER_BYTES) throw bad('an extended header is too large');
      const data = (await bytes.exactly(size, false)) ?? Buffer.alloc(0);
      await bytes.exactly(padding, false);
      if (flag === 'g') global = { ...global, ...paxRecords(data) };
      else if (flag === 'x') next = { ...next, ...paxRecords(data) };
      else next = { ...next, [flag === 'L' ? 'path' : 'linkpath']: text(data, 0, data.length) };
      continue;
    }
    const type = TYPES[flag];
    const pax = { ...global, ...next };
    next = {};
    const length = pax['size'] === undefined ? size : Number(pax['size']);
    if (!type || Object.keys(pax).some((key) => key.startsWith('GNU.sparse'))) {
      throw bad(`entries of kind ${JSON.stringify(flag)} (${pax['path'] ?? ''}) cannot be read`);
    }
    const prefix = text(header, 257, 5) === 'ustar' && header[262] === 0 ? text(header, 345, 155) : '';
    const name = text(header, 0, 100);
    const held = type === 'file' ? length : 0;
    const body = bytes.chunks(held);
    yield {
      path: pax['path'] ?? (prefix ? `${prefix}/${name}` : name),
      type,
      mode: number(header, 100, 8) & 0o7777,
      uid: Number(pax['uid'] ?? number(header, 108, 8)),
      gid: Number(pax['gid'] ?? number(header, 116, 8)),
      mtime: Number(pax['mtime'] ?? number(header, 136, 12)),
      size: held,
      linkPath: pax['linkpath'] ?? text(header, 157, 100),
      device: { major: number(header, 329, 8), minor: number(header, 337, 8) },
      body,
    };
    for await (const _ of body);
    await bytes.exactly((BLOCK - (held % BLOCK)) % BLOCK, false);
  }
  await bytes.drain();
}

function byteSource(source: AsyncIterable<Uint8Array>) {
  const iterator = source[Symbol.asyncIterator]();
  let buffer: Uint8Array = new Uint8Array(0);
  const fill = async (): Promise<boolean> => {
    const { done, value } = await iterator.next();
    if (done) return false;
    buffer = value;
    return true;
  };
  const take = (most: number): Uint8Array => {
    const part = buffer.subarray(0, most);
    buffer = buffer.subarray(part.length);
    return part;
  };
  return {
    /** That many bytes; null at the end of the source, where that may be. */
    async exactly(count: number, mayEnd: boolean): Promise<Buffer | null> {
      const parts: Uint8Array[] = [];
      let got = 0;
      while (got < count) {
        if (buffer.length === 0 && !(await fill())) {
          if (got === 0 && mayEnd) return null;
          throw bad('it ends in the middle');
        }
        const part = take(count - got);
        parts.push(part);
        got += part.length;
      }
      return Buffer.concat(parts);
    },
    /** Bytes as they come; a second reader goes on where the first has stopped. */
    chunks(count: number): AsyncIterable<Uint8Array> {
      let left = count;
      const next = async (): Promise<IteratorResult<Uint8Array>> => {
        if (left === 0) return { done: true, value: undefined };
        while (buffer.length === 0) if (!(await fill())) throw bad('it ends in the middle');
        const part = take(left);
        left -= part.length;
        return { done: false, value: part };
      };
      return { [Symbol.asyncIterator]: () => ({ next }) };
    },
    async drain(): Promise<void> {
      while (await fill());
    },
  };
}

/** A number field: octal text, or (GNU) base 256 when the first bit is set. */
function number(header: Uint8Array, offset: number, length: number): number {
  const first = header[offset] ?? 0;
  if ((first & 0x80) === 0) {
    const digits = text(header, offset, length).trim();
    if (!/^[0-7]*$/.test(digits)) throw bad(`${JSON.stringify(digits)} is not an octal number`);
    return digits === '' ? 0 : Number.parseInt(digits, 8);
  }
  let value = first & 0x7f;
  for (let i = 1; i < length; i++) value = value * 256 + (header[offset + i] ?? 0);
  if (!Number.isSafeInteger(value)) throw bad('a number is too large');
  return value;
}

/** Text up to the first NUL. */
function text(data: Uint8Array, offset: number, length: number): string {
  const part = Buffer.from(data.buffer, data.byteOffset + offset, length);
  const end = part.indexOf(0);
  return part.toString('utf8', 0, end < 0 ? length : end);
}

/** "LENGTH KEY=VALUE\n" records (pax, POSIX.1-2001). */
function paxRecords(data: Buffer): Record<string, string> {
  const records: Record<string, string> = {};
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(32, at);
    const length = Number(data.toString('latin1', at, space));
    if (space < 0 || !Number.isInteger(length) || length < 5) throw bad('an extended header is malformed');
    const record = data.toString('utf8', space + 1, at + length - 1);
    const equals = record.indexOf('=');
    records[record.slice(0, equals)] = record.slice(equals + 1);
    at += length;
  }
  return records;
}

function checkSum(header: Uint8Array): void {
  let sum = 0;
  for (const [i, byte] of header.entries()) sum += i >= 148 && i < 156 ? 32 : byte;
  if (sum !== number(header, 148, 8)) throw bad('a header has a wrong checksum');
}

function bad(why: string): FairleadError {
  return new FairleadError(`not a readable tar archive: ${why}`, {
    op: 'read archive',
    code: 'bad-archive',
    hint: 'archives of images are written by docker save -o FILE IMAGE, or skopeo copy … oci-archive:FILE',
  });
}

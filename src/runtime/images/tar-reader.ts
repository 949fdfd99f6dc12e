import { Readable } from 'node:stream';
import { type ExtractEvents, extract, type Header } from 'tar-stream';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { MAX_ID } from '../../lib/user-ids.ts';

export type TarEntryType = 'file' | 'link' | 'symlink' | 'character' | 'block' | 'directory' | 'fifo';

/** One entry of a tar archive. `body` is read, or skipped when the next entry is requested. */
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

const TYPES: Readonly<Record<string, TarEntryType>> = {
  file: 'file',
  'contiguous-file': 'file',
  link: 'link',
  symlink: 'symlink',
  'character-device': 'character',
  'block-device': 'block',
  directory: 'directory',
  fifo: 'fifo',
};
// Linux's device numbers: 12 bits and 20 bits (linux/kdev_t.h).
const MAX_MAJOR = 2 ** 12 - 1;
const MAX_MINOR = 2 ** 20 - 1;

/**
 * Reads a tar archive (POSIX ustar and pax, GNU long names) to its end. The archive is untrusted: every number is
 * checked here, paths and links by the caller. Throws FairleadError "bad-archive".
 */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  // An option that the package's own types omit: archives older than POSIX have no magic number.
  const archive = extract({ allowUnknownFormat: true } as Parameters<typeof extract>[0]);
  const input = Readable.from(source, { objectMode: false });
  // An error of the source ends the reading below with the same error.
  input.on('error', (error) => archive.destroy(error));
  input.pipe(archive as unknown as NodeJS.WritableStream);
  try {
    for await (const entry of archive) {
      yield checkedEntry(entry);
      // Skips the unread rest.
      entry.resume();
    }
  } catch (error) {
    throw error instanceof FairleadError ? error : bad(messageOf(error), error);
  } finally {
    input.destroy();
  }
}

function checkedEntry(entry: ExtractEvents['entry'][1]): TarEntry {
  const header: Header = entry.header;
  const pax = (header.pax ?? {}) as Readonly<Record<string, string>>;
  const path = header.name;
  const type = TYPES[header.type ?? ''];
  if (!type || Object.keys(pax).some((key) => key.startsWith('GNU.sparse'))) {
    throw bad(
      `the entry ${JSON.stringify(path)} is of a type that is not supported (${header.type ?? 'unknown'})`,
    );
  }
  if (path.includes('\0') || header.linkname?.includes('\0')) throw bad('a path contains a NUL byte');
  const checked = (field: string, value: number | undefined, max: number): number => {
    if (value === undefined || !Number.isInteger(value) || value < 0 || value > max) {
      throw bad(`the entry ${JSON.stringify(path)} has an invalid ${field}: ${value}`);
    }
    return value;
  };
  // tar-stream parses only the names and the size in pax headers.
  const number = (field: string, plain: number | undefined) =>
    pax[field] === undefined ? plain : Number(pax[field]);
  const seconds = pax['mtime'] === undefined ? (header.mtime?.getTime() ?? 0) / 1000 : Number(pax['mtime']);
  const isDevice = type === 'character' || type === 'block';
  return {
    path,
    type,
    mode: checked('mode', header.mode, Number.MAX_SAFE_INTEGER) & 0o7777,
    uid: checked('user', number('uid', header.uid), MAX_ID),
    gid: checked('group', number('gid', header.gid), MAX_ID),
    mtime: Number.isFinite(seconds) ? seconds : 0,
    size: checked('size', header.size, Number.MAX_SAFE_INTEGER),
    linkPath: header.linkname ?? '',
    device: isDevice
      ? {
          major: checked('device number', header.devmajor, MAX_MAJOR),
          minor: checked('device number', header.devminor, MAX_MINOR),
        }
      : { major: 0, minor: 0 },
    body: type === 'file' ? (entry as AsyncIterable<Uint8Array>) : nothing,
  };
}

const nothing: AsyncIterable<Uint8Array> = {
  [Symbol.asyncIterator]: () => ({ next: () => Promise.resolve({ done: true, value: undefined }) }),
};

function bad(why: string, cause?: unknown): FairleadError {
  return new FairleadError(`not a readable tar archive: ${why}`, {
    op: 'read archive',
    code: 'bad-archive',
    hint: 'create archives of images with docker save -o FILE IMAGE, or skopeo copy … oci-archive:FILE',
    cause,
  });
}

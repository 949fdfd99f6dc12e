import { closeSync, fstatSync, openSync, readSync, statSync, watch } from 'node:fs';
import { Readable } from 'node:stream';

export interface LogOptions {
  readonly follow: boolean;
  readonly tailLines: number | null;
  readonly sinceTime: Date | null;
  readonly timestamps: boolean;
  readonly limitBytes: number | null;
  /** One of the streams; null: both. */
  readonly stream: 'stdout' | 'stderr' | null;
  /** Reports whether the container has stopped writing; called at the end of the file. */
  readonly ended: () => boolean;
  readonly signal: AbortSignal;
}

const CHUNK = 64 * 1024;

/**
 * Streams a container's log as kubectl prints it, from a file in the CRI format: "TIMESTAMP STREAM P|F TEXT" per line,
 * where P marks a partial line.
 */
export function readLog(file: string, options: LogOptions): Readable {
  return Readable.from(logLines(file, options), { objectMode: false });
}

async function* logLines(file: string, options: LogOptions): AsyncGenerator<Buffer> {
  let fd = openSync(file, 'r');
  const changed = Promise.withResolvers<void>();
  let wake = changed.resolve;
  let waiting = changed.promise;
  const watcher = options.follow ? watch(file, () => wake()) : null;
  const abort = () => wake();
  options.signal.addEventListener('abort', abort);
  try {
    let position = options.tailLines === null ? 0 : tailStart(fd, options.tailLines);
    let pending = Buffer.alloc(0);
    let left = options.limitBytes ?? Number.POSITIVE_INFINITY;
    const render = lineRenderer(options);
    while (!options.signal.aborted && left > 0) {
      // Called before the read, so that this read or the next sees everything written before the end.
      const ended = options.ended();
      const chunk = Buffer.alloc(CHUNK);
      const count = readSync(fd, chunk, 0, CHUNK, position);
      if (count === 0) {
        if (!options.follow || ended) break;
        if (isReplaced(fd, file)) {
          // The runtime has rotated the file.
          closeSync(fd);
          fd = openSync(file, 'r');
          position = 0;
          continue;
        }
        await Promise.race([waiting, new Promise((resolve) => setTimeout(resolve, 500).unref())]);
        ({ promise: waiting, resolve: wake } = Promise.withResolvers<void>());
        continue;
      }
      position += count;
      pending = Buffer.concat([pending, chunk.subarray(0, count)]);
      const out: Buffer[] = [];
      for (let end = pending.indexOf(10); end >= 0; end = pending.indexOf(10)) {
        const line = render(pending.subarray(0, end));
        pending = pending.subarray(end + 1);
        if (line) out.push(line);
      }
      const text = Buffer.concat(out).subarray(0, left);
      left -= text.length;
      if (text.length > 0) yield text;
    }
  } finally {
    options.signal.removeEventListener('abort', abort);
    watcher?.close();
    closeSync(fd);
  }
}

function isReplaced(fd: number, file: string): boolean {
  const now = statSync(file, { throwIfNoEntry: false });
  return now !== undefined && now.ino !== fstatSync(fd).ino;
}

/**
 * Renders the lines of the file. Partial lines are joined: the timestamp of the first part decides whether the whole line
 * is shown.
 */
function lineRenderer(options: Pick<LogOptions, 'sinceTime' | 'timestamps' | 'stream'>) {
  /** Streams in the middle of a line; true if its parts are shown. */
  const begun = new Map<string, boolean>();
  return (line: Buffer): Buffer | null => {
    const first = line.indexOf(32);
    const second = line.indexOf(32, first + 1);
    const third = line.indexOf(32, second + 1);
    if (first < 0 || second < 0) return null;
    const stream = line.toString('latin1', first + 1, second);
    if (options.stream !== null && stream !== options.stream) return null;
    const stamp = line.toString('latin1', 0, first);
    const partial = line[second + 1] === 0x50;
    const before = begun.get(stream);
    const shown = before ?? !(options.sinceTime && new Date(stamp) < options.sinceTime);
    if (partial) begun.set(stream, shown);
    else begun.delete(stream);
    if (!shown) return null;
    return Buffer.concat([
      ...(options.timestamps && before === undefined ? [Buffer.from(`${stamp} `)] : []),
      third < 0 ? Buffer.alloc(0) : line.subarray(third + 1),
      ...(partial ? [] : [Buffer.of(10)]),
    ]);
  };
}

/** Reads the last lines of a finished log, as kubectl prints them. */
export function lastLines(file: string, count: number): string {
  const fd = openSync(file, 'r');
  try {
    const start = tailStart(fd, count);
    const data = Buffer.alloc(fstatSync(fd).size - start);
    readSync(fd, data, 0, data.length, start);
    const render = lineRenderer({ sinceTime: null, timestamps: false, stream: null });
    return data
      .toString('utf8')
      .split('\n')
      .map((line) => render(Buffer.from(line))?.toString('utf8') ?? '')
      .join('');
  } finally {
    closeSync(fd);
  }
}

/** Returns the start of the last `lines` lines; partial lines ("P") count once, by their last part. */
function tailStart(fd: number, lines: number): number {
  let found = 0;
  let end = -1;
  for (const newline of newlinesBackwards(fd)) {
    // The line between the two newlines; the first of them ends the previous line.
    if (end >= 0 && isWhole(fd, newline + 1) && ++found > lines) return end + 1;
    end = newline;
  }
  return 0;
}

/** Yields positions of newlines from the end of the file; -1, the position before the first line, comes last. */
function* newlinesBackwards(fd: number): Generator<number> {
  const chunk = Buffer.alloc(CHUNK);
  for (let end = fstatSync(fd).size; end > 0; ) {
    const start = Math.max(0, end - CHUNK);
    readSync(fd, chunk, 0, end - start, start);
    for (let i = end - start - 1; i >= 0; i--) if (chunk[i] === 10) yield start + i;
    end = start;
  }
  yield -1;
}

function isWhole(fd: number, start: number): boolean {
  // "2026-01-01T00:00:00.000000000+00:00 stdout F "
  const head = Buffer.alloc(64);
  readSync(fd, head, 0, head.length, start);
  return head.toString('latin1').split(' ', 3)[2] !== 'P';
}

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { watchPath } from '../kernel/path-watch.ts';

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
/** At least "2026-01-01T00:00:00.000000000+00:00 stdout F ". */
const LINE_HEAD_BYTES = 48;

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
  const watcher = options.follow ? watchPath(file, () => wake()) : null;
  const abort = () => wake();
  options.signal.addEventListener('abort', abort);
  try {
    let position = options.tailLines === null ? 0 : await finishedLater(tailStart(fd, options.tailLines, 0));
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
      let begin = 0;
      for (let end = pending.indexOf(10); end >= 0; end = pending.indexOf(10, begin)) {
        const line = render(pending.subarray(begin, end));
        begin = end + 1;
        if (line) out.push(line);
      }
      pending = pending.subarray(begin);
      const text = Buffer.concat(out).subarray(0, left);
      left -= text.length;
      if (text.length > 0) yield text;
      else await setImmediate();
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

/** Reads the last lines of a finished log, as kubectl prints them, from at most its last `maxBytes` bytes of output. */
export function lastLines(file: string, count: number, maxBytes: number): string {
  const fd = openSync(file, 'r');
  try {
    const { size } = fstatSync(fd);
    // A line adds at least one byte of output, its newline.
    const start = finished(tailStart(fd, count, Math.max(0, size - maxBytes * LINE_HEAD_BYTES)));
    const data = Buffer.alloc(size - start);
    const length = readSync(fd, data, 0, data.length, start);
    const render = lineRenderer({ sinceTime: null, timestamps: false, stream: null });
    const out: Buffer[] = [];
    for (const line of linesOf(data.subarray(0, length))) {
      const text = render(line);
      if (text) out.push(text);
    }
    const all = Buffer.concat(out);
    return all.toString('utf8', Math.max(0, all.length - maxBytes));
  } finally {
    closeSync(fd);
  }
}

function* linesOf(data: Buffer): Generator<Buffer> {
  for (let at = 0; at < data.length; ) {
    const newline = data.indexOf(10, at);
    const end = newline < 0 ? data.length : newline;
    yield data.subarray(at, end);
    at = end + 1;
  }
}

/**
 * Returns the start of the last `lines` lines, at or after `floor`, and pauses after each chunk; partial lines ("P") count
 * once, by their last part.
 */
function* tailStart(fd: number, lines: number, floor: number): Generator<undefined, number> {
  const chunk = Buffer.alloc(CHUNK + LINE_HEAD_BYTES);
  let found = 0;
  let lineEnd = -1;
  for (let end = fstatSync(fd).size; end > floor; ) {
    const start = Math.max(floor, end - CHUNK);
    const length = readSync(fd, chunk, 0, end - start + LINE_HEAD_BYTES, start);
    let at = chunk.lastIndexOf(10, end - start - 1);
    for (; at >= 0; at = at === 0 ? -1 : chunk.lastIndexOf(10, at - 1)) {
      // The line between the two newlines; the first of them ends the previous line.
      if (lineEnd >= 0 && isWhole(chunk.subarray(at + 1, length)) && ++found > lines) return lineEnd + 1;
      lineEnd = start + at;
    }
    end = start;
    yield;
  }
  if (floor > 0) return lineEnd + 1;
  return lineEnd >= 0 && isWhole(chunk) && found >= lines ? lineEnd + 1 : 0;
}

/** Reports whether a line is whole, or the last part of one, by its head. */
function isWhole(line: Buffer): boolean {
  return line.toString('latin1', 0, LINE_HEAD_BYTES).split(' ', 3)[2] !== 'P';
}

function finished<T>(steps: Generator<undefined, T>): T {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

/** Completes steps; the event loop serves others between them. */
async function finishedLater<T>(steps: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
    await setImmediate();
  }
}

import {
  accessSync,
  constants,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { cachedDataVersionTag, setFlagsFromString } from 'node:v8';
import { Script } from 'node:vm';
import { freshPath } from '../kernel/replace-file.ts';
import { hasCode } from '../lib/errors.ts';

/** After this time a long-running process has compiled what a start needs; later, V8 drops functions that are no longer used. */
const KEEP_AFTER_MS = 10_000;
const CHECKSUM_BYTES = 4;
const FNV_PRIME = 0x01000193;
/** Flags that a process sets while it runs (src/apiserver/linear-regexp.ts). V8 refuses bytecode made under other flags. */
const LATE_FLAGS = ['enable-experimental-regexp-engine-on-excessive-backtracks'];

/**
 * Runs a file of the bundle, a function in the form of a CommonJS module, and returns its exports. V8's bytecode of all
 * functions that a run has called is kept below `folder`, so that later processes start without compiling; Node.js's own
 * compile cache has only what is compiled before the file runs. A folder that cannot be written is not used.
 */
export function runKept<T>(file: string, folder: string): T {
  const kept = join(folder, `${basename(file)}-${statSync(file).mtimeMs}-${programKey()}`);
  const cachedData = readKept(kept);
  // The bundle is ASCII.
  const source = readFileSync(file, 'latin1');
  const script = new Script(source, { filename: file, ...(cachedData ? { cachedData } : {}) });
  if ((!cachedData || script.cachedDataRejected) && isWritable(folder))
    keepLater(script, kept, `${basename(file)}-`);
  const module: { exports: unknown } = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(file), module, file, dirname(file));
  return module.exports as T;
}

/**
 * Returns a name for this Node.js with its flags: an FNV-1a hash in hexadecimal. V8 itself refuses bytecode that does not fit;
 * its own name for that, and better hashes, are in modules that take milliseconds to load.
 */
function programKey(): string {
  const { version, arch, execArgv, env } = process;
  const text = JSON.stringify([version, arch, execArgv, env['NODE_OPTIONS']]);
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), FNV_PRIME) >>> 0;
  return hash.toString(16);
}

/** Reports whether a folder is one that can be written, or can be created. */
function isWritable(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch (error) {
    const parent = dirname(folder);
    return hasCode(error, 'ENOENT') && parent !== folder && isWritable(parent);
  }
}

/** Returns kept bytecode; undefined: there is none, or it was damaged. */
function readKept(path: string): Buffer | undefined {
  try {
    const data = readFileSync(path);
    const code = data.subarray(0, -CHECKSUM_BYTES);
    return code.length > 0 && data.readUInt32LE(code.length) === checksumOf(code) ? code : undefined;
  } catch {
    // The first start, or an unreadable folder: V8 compiles.
    return undefined;
  }
}

/**
 * Returns a checksum of one word in 64 bytes, so that the loss of a sector of a disk is noticed: V8 crashes on bytecode that is
 * damaged. To read all words, or to load node:zlib, takes milliseconds.
 */
function checksumOf(code: Buffer): number {
  const words = new Uint32Array(code.buffer, code.byteOffset, code.length >> 2);
  let sum = code.length;
  for (let i = 0; i < words.length; i += 16) sum = Math.imul(sum ^ (words[i] ?? 0), FNV_PRIME);
  return sum >>> 0;
}

function keepLater(script: Script, path: string, prefix: string): void {
  let isKept = false;
  const tag = cachedDataVersionTag();
  const keep = () => {
    if (isKept) return;
    isKept = true;
    const fresh = freshPath(path);
    try {
      const code = bytecodeOf(script, tag);
      if (!code) return;
      mkdirSync(dirname(path), { recursive: true });
      const checksum = Buffer.alloc(CHECKSUM_BYTES);
      checksum.writeUInt32LE(checksumOf(code));
      writeFileSync(fresh, Buffer.concat([code, checksum]), { mode: 0o600, flush: true });
      renameSync(fresh, path);
      // Of earlier builds.
      for (const other of readdirSync(dirname(path)))
        if (other.startsWith(prefix) && !other.startsWith(basename(path)))
          rmSync(join(dirname(path), other), { force: true });
    } catch {
      // Nothing depends on it.
      rmSync(fresh, { force: true });
    }
  };
  setTimeout(keep, KEEP_AFTER_MS).unref();
  // A run that failed has called little of what others will.
  process.once('exit', (status) => {
    if (status === 0) keep();
  });
}

/** Returns the bytecode of the functions called so far, as if V8's flags were those of the start; null: they cannot be restored. */
function bytecodeOf(script: Script, tag: number): Buffer | null {
  if (cachedDataVersionTag() === tag) return script.createCachedData();
  for (const flag of LATE_FLAGS) setFlagsFromString(`--no-${flag}`);
  try {
    return cachedDataVersionTag() === tag ? script.createCachedData() : null;
  } finally {
    for (const flag of LATE_FLAGS) setFlagsFromString(`--${flag}`);
  }
}

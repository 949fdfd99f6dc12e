import { enableCompileCache, flushCompileCache } from 'node:module';
import { join } from 'node:path';

/** By then a process that stays has compiled what a start needs; later V8 drops code that is no longer used. */
const FLUSH_MS = 10_000;

/**
 * Keeps V8's bytecode of this command below `folder`, so that later processes start without compiling: for each command
 * a folder of its own, because Node.js saves a file's functions once, as the first process has compiled them. A folder
 * that cannot be written is not used. Node.js checks Node's version, the source and a checksum of what it reads.
 */
export function keepCompiledCode(folder: string, command: string): void {
  enableCompileCache(join(folder, command));
  setTimeout(flushCompileCache, FLUSH_MS).unref();
}

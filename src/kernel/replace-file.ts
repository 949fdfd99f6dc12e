import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { readOptionalBytes } from './optional-file.ts';

/**
 * Returns a name beside a file for its new content, until a rename. No other process chooses it: agents in pods of their own
 * share folders, and each has PID 1.
 */
export function freshPath(path: string): string {
  return `${path}.${process.pid}.${process.hrtime.bigint()}.new`;
}

/**
 * Writes a file atomically: readers find either the old content or the new one, complete (rename(2)). Does
 * not write if the content is unchanged, which needs no room on a full disk.
 */
export function replaceFile(path: string, content: string | Uint8Array, mode = 0o600): void {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  if (readOptionalBytes(path)?.equals(bytes)) return;
  const fresh = freshPath(path);
  try {
    writeFileSync(fresh, bytes, { mode });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}

import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { readOptionalFile } from './optional-file.ts';

/**
 * Writes a file atomically: readers find either the old content or the new one, complete (rename(2)). Does
 * not write if the content is unchanged, which needs no room on a full disk.
 */
export function replaceFile(path: string, content: string, mode = 0o600): void {
  if (readOptionalFile(path) === content) return;
  // Agents in pods of their own share folders, and each has PID 1.
  const fresh = `${path}.${process.pid}.${process.hrtime.bigint()}.new`;
  try {
    writeFileSync(fresh, content, { mode });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}

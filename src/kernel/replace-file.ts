import { renameSync, rmSync, writeFileSync } from 'node:fs';
import { readOptionalFile } from './optional-file.ts';

let count = 0;

/**
 * Writes a file so that readers find the old content or the new one, whole, and never none (rename(2)). A file that has
 * this content is left as it is, which needs no room on a full disk.
 */
export function replaceFile(path: string, content: string, mode = 0o600): void {
  if (readOptionalFile(path) === content) return;
  const fresh = `${path}.${process.pid}.${count++}.new`;
  try {
    writeFileSync(fresh, content, { mode });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}

import { copyFileSync, rmSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { readOptionalFolder } from '../kernel/optional-file.ts';
import { isDiskFull } from '../lib/errors.ts';

/** The limit of one log, as the kubelet's containerLogMaxSize. */
const MAX_LOG_BYTES = 10 * 1024 * 1024;

/**
 * Copies each log of a folder that exceeds the limit to NAME.log.1, in place of the earlier copy, and truncates it. The
 * processes keep their descriptors, which append; lines written between copy and truncation are lost. On a full disk
 * the log is truncated without a copy. Returns the names of the rotated logs.
 */
export function rotateLogs(folder: string, maxBytes = MAX_LOG_BYTES): string[] {
  return logsIn(folder).filter((name) => {
    const path = join(folder, name);
    if (statSync(path).size <= maxBytes) return false;
    const copy = `${path}.1`;
    rmSync(copy, { force: true });
    try {
      copyFileSync(path, copy);
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      rmSync(copy, { force: true });
    }
    truncateSync(path);
    return true;
  });
}

const logsIn = (folder: string): string[] =>
  readOptionalFolder(folder).filter((name) => name.endsWith('.log'));

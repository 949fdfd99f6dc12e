import { readFileSync, unlinkSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** Returns a file's text; null if the file does not exist. */
export function readOptionalFile(path: string): string | null {
  return ifThere(() => readFileSync(path, 'utf8'));
}

/** Removes a file. Returns true if it existed. */
export function removeOptionalFile(path: string): boolean {
  const removed = ifThere(() => {
    unlinkSync(path);
    return true;
  });
  return removed ?? false;
}

function ifThere<T>(act: () => T): T | null {
  try {
    return act();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return null;
    throw error;
  }
}

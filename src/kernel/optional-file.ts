import { readFileSync, unlinkSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** A file's text; null when there is none. */
export function readOptionalFile(path: string): string | null {
  return ifThere(() => readFileSync(path, 'utf8'));
}

/** Removes a file; true when there was one. */
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

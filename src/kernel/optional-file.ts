import { readdirSync, readFileSync, unlinkSync } from 'node:fs';
import { hasCode } from '../lib/errors.ts';

/** Returns a file's text; null if the file does not exist. */
export function readOptionalFile(path: string): string | null {
  return ifThere(() => readFileSync(path, 'utf8'), 'ENOENT');
}

/** Returns a file's bytes; null if the file does not exist. */
export function readOptionalBytes(path: string): Buffer | null {
  return ifThere(() => readFileSync(path), 'ENOENT');
}

/** Returns the names in a folder; none if the folder does not exist. */
export function readOptionalFolder(path: string): string[] {
  return ifThere(() => readdirSync(path), 'ENOENT', 'ENOTDIR') ?? [];
}

/** Removes a file. Returns true if it existed. */
export function removeOptionalFile(path: string): boolean {
  const removed = ifThere(() => {
    unlinkSync(path);
    return true;
  }, 'ENOENT');
  return removed ?? false;
}

function ifThere<T>(act: () => T, ...absent: readonly string[]): T | null {
  try {
    return act();
  } catch (error) {
    if (hasCode(error, ...absent)) return null;
    throw error;
  }
}

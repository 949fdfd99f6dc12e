import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Returns the path of an executable program in PATH, then in `further` folders; null: it is not there. */
export function findProgram(name: string, further: readonly string[] = []): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), ...further];
  return folders.map((folder) => join(folder, name)).find(isExecutable) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

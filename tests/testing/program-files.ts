import { execFileSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import type { LayerEntry } from '../../src/runtime/images/testing/image-builder.ts';

/** Returns a program of this machine with the libraries that it needs, as files of an image. */
export function programFiles(path: string): LayerEntry[] {
  const file = realpathSync(path);
  const libraries = execFileSync('ldd', [file], { encoding: 'utf8' }).match(/\/[^ ]+\.so[^ ]*/g) ?? [];
  const entry = (at: string) => ({ path: at.slice(1), contents: readFileSync(at), mode: 0o755 });
  return [{ ...entry(file), path: path.slice(1) }, ...libraries.map(entry)];
}

import { readFileSync } from 'node:fs';

/** Returns the mount points below a folder in this process's mount namespace, innermost first (proc(5): field 5 of mountinfo). */
export function mountsBelow(folder: string): string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) =>
      (line.split(' ')[4] ?? '').replace(/\\([0-7]{3})/g, (_, octal: string) =>
        String.fromCharCode(Number.parseInt(octal, 8)),
      ),
    )
    .filter((target) => target.startsWith(`${folder}/`))
    .reverse();
}

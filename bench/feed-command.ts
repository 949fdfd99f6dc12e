import { spawnInNetns } from '../src/kernel/netns.ts';

/** Runs a command inside a namespace with text as its input. Rejects with its error output. */
export function feedCommand(
  netns: string,
  file: string,
  args: readonly string[],
  input: string,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawnInNetns(netns, file, args, { stdio: ['pipe', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr?.on('data', (chunk: Buffer) => {
      errors += chunk;
    });
    child.once('error', reject);
    child.once('close', (status) =>
      status === 0 ? resolve() : reject(new Error(`${file}: ${errors.slice(0, 500)}`)),
    );
    child.stdin?.on('error', () => {});
    child.stdin?.end(input);
  });
}

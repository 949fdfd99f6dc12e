import { createNetns, removeNetns, spawnInNetns } from '../src/kernel/netns.ts';

/**
 * Runs this program again, with the option `--inside`, in a network namespace made for it. The exit status becomes this
 * process's.
 */
export async function runInOwnNamespace(label: string, program: string): Promise<void> {
  const netns = `flb-${process.pid}-${label}`;
  createNetns(netns);
  try {
    const args = [...process.execArgv, program, ...process.argv.slice(2), '--inside'];
    const child = spawnInNetns(netns, process.execPath, args, { stdio: 'inherit' });
    process.exitCode = await new Promise<number>((resolve) =>
      child.once('close', (code) => resolve(code ?? 1)),
    );
  } finally {
    removeNetns(netns);
  }
}

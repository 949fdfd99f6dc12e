import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import { inNetns } from '../src/kernel/netns.ts';
import type { Step } from './connect-relay.ts';

/**
 * Starts a process inside a namespace, with N Services of one endpoint each in userspace mode. The result removes them, and
 * ends the process.
 */
export async function startRelay(netns: string, services: number): Promise<() => Promise<void>> {
  const script = join(import.meta.dirname, 'connect-relay.ts');
  const child = inNetns(netns, () =>
    fork(script, [String(services)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }),
  );
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const succeeded = async (): Promise<void> => {
    const problem = await problemOf(child);
    if (problem === null) return;
    child.kill('SIGKILL');
    await ended;
    throw new Error(problem);
  };
  await succeeded();
  return async () => {
    const removed = succeeded();
    child.send('remove');
    await removed;
    await ended;
  };
}

/** Resolves to why the next step of a process failed; null: it has not. */
const problemOf = (child: ChildProcess): Promise<string | null> =>
  new Promise((resolve) => {
    const onExit = (status: number | null) => resolve(`the relay ended with status ${status}`);
    child.once('exit', onExit);
    child.once('error', ({ message }) => resolve(message));
    child.once('message', (step) => {
      child.off('exit', onExit);
      resolve((step as Step).problem);
    });
  });

// The userspace mode of bench/connect.ts, in a process of its own in the node's namespace, as an agent runs it: for a data
// plane that is told a namespace, each socket costs the system calls that enter it and return.
import { createUserspace } from '../src/dataplane/userspace/userspace.ts';
import { messageOf } from '../src/lib/errors.ts';
import { programCluster } from './program-cluster.ts';

/** Sent when the Services are programmed, and when they are removed. */
export interface Step {
  /** Why it failed; null: it has not. */
  readonly problem: string | null;
}

async function perform<T>(step: () => Promise<T>): Promise<T> {
  const report = (problem: string | null) =>
    new Promise<void>((resolve) => process.send?.({ problem } satisfies Step, () => resolve()));
  try {
    const result = await step();
    await report(null);
    return result;
  } catch (error) {
    await report(messageOf(error));
    process.exit(1);
  }
}

process.on('disconnect', () => process.exit(1));
const end = await perform(() =>
  programCluster(createUserspace({ families: ['ipv4'] }), Number(process.argv[2])),
);
process.once('message', async () => {
  await perform(end);
  process.exit(0);
});

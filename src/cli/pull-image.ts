import { createInterface } from 'node:readline';
import type { PullAnswer, PullRequest } from '../agent/pod-runtime/image-puller.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { pullImage } from '../runtime/images/image-pull.ts';
import { openImageStore } from '../runtime/images/image-store.ts';
import { defineCommand } from './command.ts';

/** Of the answer: registries' words are in it. */
const MAX_TEXT = 4096;

export const command = defineCommand({
  name: 'pull-image',
  summary: '',
  description: [
    "Pulls one image for a node of a local cluster, in the machine's network. The pod runtime of the node starts it, and writes the request to its standard input: a registry's password would be seen in arguments and environments.",
  ],
  arguments: [],
  options: {},
  async run(_, output) {
    const lines = createInterface({ input: process.stdin });
    const request = await new Promise<PullRequest>((resolve, reject) => {
      lines.once('line', (line) => resolve(JSON.parse(line) as PullRequest));
      lines.once('close', () => reject(new FairleadError('no request', { op: 'pull image', code: 'ended' })));
    });
    // The pod runtime has ended, and keeps its end of the pipe open until then.
    lines.once('close', () => process.exit(1));
    output.out(`${JSON.stringify(await answerOf(request))}\n`);
    lines.removeAllListeners('close');
    lines.close();
    process.stdin.destroy();
    return 0;
  },
});

async function answerOf({ name, folder, limits, ...options }: PullRequest): Promise<PullAnswer> {
  try {
    await pullImage(openImageStore(folder, limits), name, { ...options, now: new Date(systemClock.now()) });
    return { problem: null, hint: null };
  } catch (error) {
    const hint = error instanceof FairleadError ? (error.hint ?? null) : null;
    return { problem: messageOf(error).slice(0, MAX_TEXT), hint };
  }
}

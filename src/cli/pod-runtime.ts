import { Socket } from 'node:net';
import { readMachinePulls } from '../agent/pod-runtime/machine-pulls.ts';
import { type RunPodsOptions, runPods } from '../agent/pod-runtime/run-pods.ts';
import { LINK_DESCRIPTOR } from '../agent/pod-runtime/runtime-process.ts';
import { systemClock } from '../lib/clock.ts';
import { builtinImages } from './builtin-images.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { withoutMemoryFlags } from './memory-flags.ts';
import { flag } from './options.ts';
import { KUBERNETES_VERSION } from './version.ts';

/** Flags of Node.js for the process of one pull; the rest of its memory is for the thread that unpacks. */
const PULL_FLAGS = ['--max-old-space-size=128', '--max-semi-space-size=4', '--min-semi-space-size=4'];

/** Returns how this node of a local cluster pulls images; null: it is of a real one. */
function machinePulls(): RunPodsOptions['pulls'] {
  const pulls = readMachinePulls(process.env);
  if (pulls === null) return null;
  const words = [...withoutMemoryFlags(process.execArgv), ...PULL_FLAGS, process.argv[1] ?? '', 'pull-image'];
  return { ...pulls, program: { file: process.execPath, words } };
}

export const command = defineCommand({
  name: 'pod-runtime',
  summary: '',
  description: [
    'Runs the pods of a node. The agent of the node starts it, tells it what to do over descriptor 3, and starts it again when it ends.',
  ],
  arguments: [],
  options: { verbose: flag('log details') },
  async run({ options }) {
    const logger = createLogger('pod-runtime', options);
    exitOnUnhandled(logger);
    const status = await runPods({
      socket: new Socket({ fd: LINK_DESCRIPTOR }),
      builtinImages: (stateDir) => builtinImages(stateDir, process.argv[1] ?? ''),
      pulls: machinePulls(),
      version: KUBERNETES_VERSION,
      clock: systemClock,
      random: Math.random,
      logger,
      signal: shutdownSignal(),
    });
    // Sessions of exec and requests to the API server may still be open: the next run must not wait for them.
    process.exit(status);
  },
});

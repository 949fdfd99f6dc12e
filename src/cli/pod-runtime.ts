import { Socket } from 'node:net';
import { runPods } from '../agent/pod-runtime/run-pods.ts';
import { LINK_DESCRIPTOR } from '../agent/pod-runtime/runtime-process.ts';
import { systemClock } from '../lib/clock.ts';
import { builtinImages } from './builtin-images.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { flag } from './options.ts';
import { KUBERNETES_VERSION } from './version.ts';

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

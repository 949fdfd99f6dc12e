import { DEFAULT_DELAY_MS, MAX_DELAY_MS } from '../cluster/faults.ts';
import { delayLink } from '../cluster/link-delay.ts';
import { requireCluster } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { nodeNetns, UPLINK } from '../network/topology.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text, wholeNumber } from './options.ts';

export const command = defineCommand({
  name: 'link-delay',
  summary: '',
  description: ['Delays the packets of a node\'s uplink ("fairlead fault slow"), until it ends.'],
  arguments: [],
  options: {
    name: text('NAME', 'the cluster'),
    node: text('NODE', 'the node'),
    delay: wholeNumber('MS', [DEFAULT_DELAY_MS, 1, MAX_DELAY_MS], 'the delay in milliseconds'),
  },
  async run({ options }) {
    const state = requireCluster(options.name ?? '');
    const logger = createLogger('link-delay');
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const link = delayLink({
      netns: nodeNetns(state.name, options.node ?? ''),
      device: UPLINK,
      delayMs: options.delay,
      clock: systemClock,
    });
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve());
    });
    link.close();
    return 0;
  },
});

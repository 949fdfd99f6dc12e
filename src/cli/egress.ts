import { serveEgress } from '../cluster/egress.ts';
import { requireCluster } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text } from './options.ts';

export const command = defineCommand({
  name: 'egress',
  summary: '',
  description: [
    'Connects the pods of a local cluster with external networks through this machine ("fairlead up --egress"); started by its supervisor.',
  ],
  arguments: [],
  options: { name: text('NAME', 'the cluster') },
  async run({ options }) {
    const state = requireCluster(options.name ?? '');
    const logger = createLogger('egress');
    exitOnUnhandled(logger);
    await serveEgress(state.name, { clock: systemClock, logger, signal: shutdownSignal() });
    return 0;
  },
});

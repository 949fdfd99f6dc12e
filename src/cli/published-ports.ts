import { servePublishedPorts } from '../cluster/published-ports.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { systemClock } from '../lib/clock.ts';
import { defineCommand } from './command.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text } from './options.ts';

export const command = defineCommand({
  name: 'published-ports',
  summary: '',
  description: [
    'Serves the published ports of a local cluster ("fairlead up --publish"); started by its supervisor.',
  ],
  arguments: [],
  options: { name: text('NAME', 'the cluster') },
  async run({ options }) {
    const state = requireCluster(options.name ?? '');
    const logger = createLogger('published-ports');
    exitOnUnhandled(logger);
    const signal = shutdownSignal();
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    const client = createClient(transport, 'fairlead-published-ports');
    try {
      await servePublishedPorts(state.name, {
        client,
        clock: systemClock,
        random: Math.random,
        logger,
        signal,
      });
    } finally {
      transport.close();
    }
    return 0;
  },
});

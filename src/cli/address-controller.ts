import { hostname } from 'node:os';
import { allocateFromPools } from '../agent/address-pools-part.ts';
import { systemClock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { defineCommand } from './command.ts';
import { readConfigurationFile } from './configuration-file.ts';
import { createLogger, exitOnUnhandled, shutdownSignal } from './logging.ts';
import { text, usageError } from './options.ts';

export const command = defineCommand({
  name: 'address-controller',
  summary: 'assign load-balancer addresses to the Services of a real cluster',
  description: [
    'Assigns addresses from the pools of an AgentConfiguration (loadBalancer.pools) to Services of type LoadBalancer. Of several replicas, only the holder of the Lease kube-system/load-balancer-pools is active. Agents announce the addresses and need no permission to write Services.',
  ],
  arguments: [],
  options: { config: text('FILE', 'the AgentConfiguration of the agents', { main: true }) },
  async run({ options }) {
    if (options.config === null) throw usageError('address-controller', 'missing --config FILE');
    const configuration = readConfigurationFile(options.config);
    if (Object.keys(configuration.loadBalancer?.pools ?? {}).length === 0) {
      throw new FairleadError(`${options.config}: loadBalancer.pools is empty`, {
        op: 'read configuration',
        code: 'bad-config',
        hint: 'add a pool of addresses',
      });
    }
    const logger = createLogger('address-controller', configuration);
    exitOnUnhandled(logger);
    await allocateFromPools(configuration, {
      identity: process.env['POD_NAME'] ?? `${hostname()}-${process.pid}`,
      clock: systemClock,
      random: Math.random,
      logger,
      signal: shutdownSignal(),
    });
    return 0;
  },
});

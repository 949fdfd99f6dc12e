import { lockCluster } from '../cluster/name-lock.ts';
import { stopCluster } from '../cluster/removal.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { requireCluster } from '../cluster/state.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';

export const command = defineCommand({
  name: 'stop',
  summary: 'stop a local cluster and keep its state for the next "up"',
  description: [
    'Stops the processes of a local cluster and removes its namespaces, links and rules, but keeps its files. "up" starts the same cluster again, with the same objects, addresses, names, images and volumes; pods are started again.',
  ],
  arguments: [],
  options: { name: NAME_OPTION },
  asUser: ({ options }) => ({ cluster: options.name, starts: true }),
  async run({ options }, output) {
    requireOwner('stop', options.name);
    const { name } = requireCluster(options.name);
    const lock = await lockCluster(name, 'fairlead stop');
    await stopCluster(name);
    lock.release();
    output.out(`cluster ${name} is stopped; to restart it: fairlead up --name ${name}\n`);
    return 0;
  },
});

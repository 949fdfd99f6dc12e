import { findProcesses } from '../cluster/processes.ts';
import { removeCluster } from '../cluster/removal.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { checkClusterName, isUnfinished, listClusters } from '../cluster/state.ts';
import { releaseStateFolder } from '../cluster/state-folder.ts';
import { listTopology } from '../network/topology.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag } from './options.ts';

export const command = defineCommand({
  name: 'down',
  summary: 'stop a local cluster and remove all traces of it',
  description: [
    'Stops a local cluster and removes its processes, namespaces, links, rules, mounts and files. Also cleans up after an "up" or an agent that crashed.',
  ],
  arguments: [],
  options: {
    name: NAME_OPTION,
    all: flag('every local cluster', { main: true }),
  },
  asUser: ({ options }) => ({
    cluster: options.all ? null : options.name,
    starts: true,
  }),
  async run({ options }, output) {
    requireOwner('down', options.name);
    const names = options.all ? listClusters() : [checkClusterName(options.name)];
    for (const name of names) {
      const known =
        listClusters().includes(name) ||
        isUnfinished(name) ||
        listTopology(name).length > 0 ||
        findProcesses(name, []).length > 0;
      if (!known) {
        // Of an "up" that was killed before it made anything else.
        releaseStateFolder();
        output.out(`no such cluster: ${name}\n`);
        continue;
      }
      await removeCluster(name);
      output.out(`cluster ${name} removed\n`);
    }
    return 0;
  },
});

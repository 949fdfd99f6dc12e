import { findProcesses } from '../cluster/processes.ts';
import { removeCluster } from '../cluster/removal.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { checkClusterName, DEFAULT_CLUSTER, listClusters } from '../cluster/state.ts';
import { listTopology } from '../network/topology.ts';
import { type Command, parseArguments, textOption } from './command.ts';

export const command: Command = {
  help: `Usage: fairlead down [--name NAME | --all]

Stops a local cluster and leaves nothing of it behind: no process, namespace, link, rule, mount or file. Also clears
up after an "up" or an agent that crashed.

  --name NAME   the cluster (default: default)
  --all         every local cluster
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'down',
      argv,
      { name: { type: 'string' }, all: { type: 'boolean' } },
      { least: 0, most: 0, names: '' },
    );
    requireRoot('down');
    const names = parsed.values['all']
      ? listClusters()
      : [checkClusterName(textOption(parsed, 'name', DEFAULT_CLUSTER))];
    for (const name of names) {
      const known =
        listClusters().includes(name) || listTopology(name).length > 0 || findProcesses(name, []).length > 0;
      if (!known) {
        output.out(`there is no cluster ${name}\n`);
        continue;
      }
      await removeCluster(name);
      output.out(`cluster ${name} is gone\n`);
    }
    return 0;
  },
};

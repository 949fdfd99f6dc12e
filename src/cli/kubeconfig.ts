import { clusterPaths, DEFAULT_CLUSTER, requireCluster } from '../cluster/state.ts';
import { type Command, parseArguments, textOption } from './command.ts';

export const command: Command = {
  help: `Usage: fairlead kubeconfig [--name NAME]

Prints the path of the cluster's kubeconfig, for:

  export KUBECONFIG=$(fairlead kubeconfig)

  --name NAME   the cluster (default: default)
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'kubeconfig',
      argv,
      { name: { type: 'string' } },
      { least: 0, most: 0, names: '' },
    );
    const state = requireCluster(textOption(parsed, 'name', DEFAULT_CLUSTER));
    output.out(`${clusterPaths(state.name).kubeconfig}\n`);
    return 0;
  },
};

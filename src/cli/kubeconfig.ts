import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { defineCommand } from './command.ts';
import { NAME_OPTION } from './name-option.ts';

export const command = defineCommand({
  name: 'kubeconfig',
  summary: 'print the path of the kubeconfig',
  description: [
    "Prints the path of the cluster's kubeconfig, for:",
    '  export KUBECONFIG=$(fairlead kubeconfig)',
  ],
  arguments: [],
  options: { name: NAME_OPTION },
  async run({ options }, output) {
    const state = requireCluster(options.name);
    output.out(`${clusterPaths(state.name).kubeconfig}\n`);
    return 0;
  },
});

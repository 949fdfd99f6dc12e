import type { AgentState } from '../agent/control-socket.ts';
import { availableModes } from '../agent/dataplanes.ts';
import { MODE_ANNOTATION } from '../agent/proxy-part.ts';
import { askAgent } from '../cluster/agent-client.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { clusterPaths, DEFAULT_CLUSTER, requireCluster, writeCluster } from '../cluster/state.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { type Command, parseArguments, textOption, usageError } from './command.ts';
import { nodeOption } from './node-option.ts';

export const command: Command = {
  help: `Usage: fairlead mode MODE [--node NODE] [--name NAME]

Carries Services by another mode from now on, on every node or on one. The new mode is complete before the one before
is removed: connections go on, and new ones are answered all the time. The choice is kept in the node's annotation
${MODE_ANNOTATION}.

  MODE          ${availableModes().join(', ')}
  --node NODE   only this node
  --name NAME   the cluster (default: default)
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'mode',
      argv,
      { name: { type: 'string' }, node: { type: 'string' } },
      { least: 1, most: 1, names: 'MODE' },
    );
    requireRoot('mode');
    const mode = availableModes().find((one) => one === parsed.positionals[0]);
    if (!mode) {
      throw usageError(
        'mode',
        `${JSON.stringify(parsed.positionals[0])} is no mode; use one of ${availableModes().join(', ')}`,
      );
    }
    const state = requireCluster(textOption(parsed, 'name', DEFAULT_CLUSTER));
    const nodes = nodeOption('mode', parsed, state);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    try {
      const client = createClient(transport, 'fairlead-mode');
      for (const node of nodes) {
        // The agent switches before the annotation says so, so that a mode it cannot carry is an error here.
        const { mode: now } = await askAgent<AgentState>(state, node, 'POST', '/mode', { mode });
        await client.patch(RESOURCES.nodes, node, 'merge', {
          metadata: { annotations: { [MODE_ANNOTATION]: now } },
        });
        output.out(`${node}: ${now}\n`);
      }
      // Nodes that come later begin as the others are.
      if (textOption(parsed, 'node', '') === '') writeCluster({ ...state, mode });
    } finally {
      transport.close();
    }
    return 0;
  },
};

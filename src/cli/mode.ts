import type { AgentState } from '../agent/control-socket.ts';
import { availableModes } from '../agent/dataplanes.ts';
import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import { askAgent } from '../cluster/agent-client.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster, writeCluster } from '../cluster/state.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { selectNodes } from './node-option.ts';
import { text, usageError } from './options.ts';

export const command = defineCommand({
  name: 'mode',
  summary: 'switch the proxy mode without interrupting traffic',
  description: [
    `Switches the proxy mode on every node, or on one. The previous mode is removed after the new one is complete: open connections continue, and new ones succeed at any time. The node's annotation ${MODE_ANNOTATION} stores the mode.`,
  ],
  arguments: [{ name: 'MODE', help: 'the proxy mode', choices: availableModes() }],
  options: {
    node: text('NODE', 'only this node', { main: true }),
    name: NAME_OPTION,
  },
  async run({ options, args }, output) {
    const mode = availableModes().find((one) => one === args[0]);
    if (!mode) throw usageError('mode', 'missing MODE');
    requireRoot('mode');
    const state = requireCluster(options.name);
    const nodes = selectNodes('mode', options.node, state);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    try {
      const client = createClient(transport, 'fairlead-mode');
      for (const node of nodes) {
        // The agent switches before the annotation is written, so that an unsupported mode is an error of this command.
        const { mode: now } = await askAgent<AgentState>(state, node, 'POST', '/mode', { mode });
        await client.patch(RESOURCES.nodes, node, 'merge', {
          metadata: { annotations: { [MODE_ANNOTATION]: now } },
        });
        output.out(`${node}: ${now}\n`);
      }
      // Nodes that are added later start in this mode.
      if (options.node === null) writeCluster({ ...state, mode });
    } finally {
      transport.close();
    }
    return 0;
  },
});

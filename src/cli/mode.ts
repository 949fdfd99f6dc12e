import { availableModes } from '../agent/dataplanes.ts';
import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import { changeMode } from '../cluster/mode-change.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { selectNodes } from './node-option.ts';
import { text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';

export const command = defineCommand({
  name: 'mode',
  summary: 'switch the proxy mode without interrupting traffic',
  description: [
    `Switches the proxy mode on every node, or on one. The previous mode is removed after the new one is complete: open connections continue, and new ones succeed at any time. The node's annotation ${MODE_ANNOTATION} stores the mode.`,
  ],
  arguments: [{ name: 'MODE', help: 'the proxy mode', choices: availableModes() }],
  options: {
    node: text('NODE', 'only this node', { main: true }),
    ...FORMAT_OPTIONS,
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
      const switched = await changeMode(state, client, mode, options.node === null ? null : nodes, (node) => {
        if (options.output === 'text') output.out(`${node.name}: ${node.mode}\n`);
      });
      output.out(renderFacts({ nodes: switched }, options) ?? '');
    } finally {
      transport.close();
    }
    return 0;
  },
});

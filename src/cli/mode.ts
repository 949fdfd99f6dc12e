import { availableModes } from '../agent/dataplanes.ts';
import { MODE_ANNOTATION } from '../agent/mode-switch.ts';
import { changeMode } from '../cluster/mode-change.ts';
import type { RemoteCluster } from '../cluster/remote-cluster.ts';
import { requireOwner } from '../cluster/requirements.ts';
import { refuseMode } from '../cluster/rootless/refusals.ts';
import { clusterPaths, listClusters, requireCluster } from '../cluster/state.ts';
import type { Mode } from '../dataplane/dataplane.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { defineCommand, type Output } from './command.ts';
import { NAME_OPTION } from './name-option.ts';
import { selectNodes } from './node-option.ts';
import { text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS, selectRemoteNodes } from './remote-option.ts';

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
    ...REMOTE_OPTIONS,
  },
  asUser(parsed) {
    const run = ownCluster('mode', parsed);
    const mode = availableModes().find((one) => one === parsed.args[0]);
    if (run !== null && mode && listClusters().includes(parsed.options.name)) refuseMode(mode);
    return run;
  },
  async run(parsed, output) {
    const { options, args } = parsed;
    const mode = availableModes().find((one) => one === args[0]);
    if (!mode) throw usageError('mode', 'missing MODE');
    const remote = await openRemote('mode', parsed);
    if (remote) return await changeRemotely(remote, mode, options, output).finally(() => remote.close());
    requireOwner('mode', options.name);
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

/** Switches the nodes of a cluster whose agents run in pods. A node that fails is one line, not the end. */
async function changeRemotely(
  cluster: RemoteCluster,
  mode: Mode,
  options: { readonly node: string | null; readonly output: 'text' | 'json' | 'yaml' },
  output: Output,
): Promise<number> {
  const nodes = selectRemoteNodes('mode', options.node, cluster);
  const switched = await cluster.changeMode(mode, nodes, (node) => {
    if (options.output !== 'text') return;
    if (node.mode !== null) output.out(`${node.name}: ${node.mode}\n`);
    if (node.problem !== null) output.err(`fairlead: ${node.name}: ${node.problem}\n`);
  });
  output.out(renderFacts({ nodes: switched }, options) ?? '');
  return switched.every(({ problem }) => problem === null) ? 0 : 1;
}

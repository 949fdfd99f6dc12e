import { type CleanupStep, removeAll } from '../agent/cleanup.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { silentLogger } from '../lib/log.ts';
import { defineCommand, type Output } from './command.ts';
import { readConfigurationFile } from './configuration-file.ts';
import { wrapLines } from './help-text.ts';
import { isForNodes, NODE_RUN_OPTIONS } from './node-run.ts';
import { text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { cleanupRemotely } from './remote-cleanup.ts';

export const command = defineCommand({
  name: 'cleanup',
  summary: 'remove everything that an agent wrote on this node, or on all nodes of a cluster',
  description: [
    "Removes from this node everything that Fairlead's agent wrote, in any mode: rules, maps, sets, virtual servers, BPF programs and their pins, devices, routes, the CNI plugin. Changes nothing else. Stop the agent first: a running agent would write it again. If kube-proxy is running, the command first waits until it has programmed the Services, and keeps its rules. Services and pods of this node have no network afterwards.",
    'With --kubeconfig or --context it does so on the nodes of a cluster, in a privileged pod on each, when no agents run there. Their namespace fairlead-cleanup is removed afterwards, also after Ctrl-C.',
  ],
  arguments: [],
  options: {
    config: text(
      'FILE',
      'the configuration of the agent that ran here: parts that it disables, devices of pods and state files are kept',
    ),
    ...NODE_RUN_OPTIONS,
    'node-root': text('DIR', "where the node's root file system is mounted, if this is a container", {
      fallback: '/',
    }),
    ...FORMAT_OPTIONS,
  },
  examples: ['cleanup', 'cleanup --context prod --image registry.example/fairlead:0.1.0'],
  async run({ options }, output) {
    if (isForNodes('cleanup', options)) {
      if (options.config !== null)
        throw usageError('cleanup', '--config is for this node only: without it, all parts are removed');
      return await cleanupRemotely(options, output);
    }
    requireRoot('cleanup');
    const configuration = options.config === null ? null : readConfigurationFile(options.config);
    const steps = await removeAll(configuration, silentLogger, {
      nodeRoot: options['node-root'],
      onWait: (evidence) =>
        output.err(`waiting for kube-proxy (${evidence}): it has not programmed the Services yet\n`),
    });
    const facts = renderFacts({ steps }, options);
    if (facts === null) return printSteps(steps, output);
    output.out(facts);
    return steps.every(({ error }) => error === null) ? 0 : 1;
  },
});

/** Prints the result of each step. Returns the exit status. */
export function printSteps(steps: readonly CleanupStep[], output: Output): number {
  for (const { what, error, hint } of steps) {
    if (error === null) output.out(wrapLines(`✓ ${what}\n`, output.columns));
    else output.err(wrapLines(`✗ ${what}: ${error}\n`, output.columns));
    if (hint !== null) output.err(wrapLines(`  try: ${hint}\n`, output.columns));
  }
  return steps.every(({ error }) => error === null) ? 0 : 1;
}

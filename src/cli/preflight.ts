import { preflight } from '../agent/preflight.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { findingText } from './preflight-text.ts';
import { preflightRemotely } from './remote-preflight.ts';

export const command = defineCommand({
  name: 'preflight',
  summary: 'check whether the agent can run on this node, or on all nodes of a cluster',
  description: [
    'Checks the kernel, rules of other proxies, ports in use, network sysctls and MTUs, and prints the fix for each problem. Changes nothing. The exit status is 1 if there is a problem.',
    'With --kubeconfig or --context it checks the nodes of a cluster, with or without agents, in a privileged pod on each. Their namespace fairlead-preflight is removed afterwards, also after Ctrl-C.',
  ],
  arguments: [],
  options: {
    kubeconfig: text('FILE', 'check the nodes of the cluster of this kubeconfig', { main: true }),
    context: text('NAME', 'its context; default: the current one'),
    node: text('NODE', 'only this node of the cluster'),
    image: text('IMAGE', "the pods' image; default: that of the agents, else that of this version"),
    'node-root': text('DIR', "where the node's root file system is mounted, if this is a container", {
      fallback: '/',
    }),
    ...FORMAT_OPTIONS,
  },
  examples: ['preflight', 'preflight --context prod --image registry.example/fairlead:0.1.0'],
  async run({ options }, output) {
    const { kubeconfig, context } = options;
    if (kubeconfig !== null || context !== null) return await preflightRemotely(options, output);
    for (const name of ['node', 'image'] as const)
      if (options[name] !== null)
        throw usageError(
          'preflight',
          `--${name} is for the nodes of a cluster: add --kubeconfig or --context`,
        );
    requireRoot('preflight');
    const findings = await preflight(options['node-root']);
    const facts = renderFacts({ findings }, options);
    output.out(facts ?? wrapLines(findings.map(findingText).join(''), output.columns));
    return findings.some(({ level }) => level === 'problem') ? 1 : 0;
  },
});

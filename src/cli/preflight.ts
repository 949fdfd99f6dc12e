import { preflight } from '../agent/preflight.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { isForNodes, NODE_RUN_OPTIONS } from './node-run.ts';
import { text } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { findingText } from './preflight-text.ts';
import { preflightRemotely } from './remote-preflight.ts';

export const command = defineCommand({
  name: 'preflight',
  summary: 'check whether the agent can run on this node, or on all nodes of a cluster',
  description: [
    'Checks the kernel, rules of other proxies, ports in use, network sysctls and MTUs, and prints the fix for each problem. Changes nothing. The exit status is 1 if there is a problem.',
    'With --kubeconfig or --context it checks the nodes of a cluster, with or without agents, in a privileged pod on each, and whether their kubelets give pods the cluster IP of DNS. Their namespace fairlead-preflight is removed afterwards, also after Ctrl-C.',
  ],
  arguments: [],
  options: {
    ...NODE_RUN_OPTIONS,
    'node-root': text('DIR', "where the node's root file system is mounted, if this is a container", {
      fallback: '/',
    }),
    ...FORMAT_OPTIONS,
  },
  examples: ['preflight', 'preflight --context prod --image registry.example/fairlead:0.1.0'],
  async run({ options }, output) {
    if (isForNodes('preflight', options)) return await preflightRemotely(options, output);
    requireRoot('preflight');
    const findings = await preflight(options['node-root']);
    const facts = renderFacts({ findings }, options);
    output.out(facts ?? wrapLines(findings.map(findingText).join(''), output.columns));
    return findings.some(({ level }) => level === 'problem') ? 1 : 0;
  },
});

import { requireRoot } from '../cluster/requirements.ts';
import { clusterPaths, requireCluster } from '../cluster/state.ts';
import { type TracedFlow, traceFlow } from '../cluster/trace-flow.ts';
import { createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { renderExplanation } from '../observe/explain-text.ts';
import { renderTrace } from '../trace/trace-text.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { flag, usageError, wholeNumber } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';

export const command = defineCommand({
  name: 'trace',
  summary: 'send one packet and show every device that it passes',
  description: [
    'Opens one real connection (or sends one datagram) from FROM to TO, and shows every network device that its first packet and the answer pass, with the time, the addresses, and the rule, map entry or proxy that changes them. If no answer comes back, it shows where the packet was last seen, the kernel counters that moved meanwhile, and the fix. Each step of "explain" is compared with the packet. For clusters of "up".',
    'The connection carries no data; a datagram carries a short text (to port 53, a DNS question). Other traffic is not recorded, and nothing remains when the command ends.',
    'The exit status is 0 if every connection was answered.',
  ],
  arguments: [
    { name: 'FROM', help: 'pod/NAME, NAMESPACE/NAME, deploy/NAME, node/NAME or outside' },
    {
      name: 'TO',
      help: 'as for "explain": svc/NAME, pod/NAME, a DNS name, a URL, an address, …; then :PORT and /PROTOCOL',
    },
  ],
  synopsis: ['FROM TO[:PORT][/PROTOCOL]'],
  options: {
    name: NAME_OPTION,
    count: wholeNumber('N', [1, 1, 1000], 'how many connections, one after the other'),
    ipv4: flag('use IPv4 addresses only', { short: '4' }),
    ipv6: flag('use IPv6 addresses only', { short: '6' }),
    ...FORMAT_OPTIONS,
  },
  examples: [
    'trace client svc/hello',
    'trace client http://hello/ -6',
    'trace outside node/node-1:30080/UDP -o json',
  ],
  async run({ options, args: [from = '', to = ''] }, output) {
    if (options.ipv4 && options.ipv6) throw usageError('trace', 'use one of -4 and -6');
    requireRoot('trace');
    const family = options.ipv4 ? 'ipv4' : options.ipv6 ? 'ipv6' : null;
    const state = requireCluster(options.name);
    const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
    const flows: TracedFlow[] = [];
    try {
      const client = createClient(transport, 'fairlead-trace');
      for (let n = 1; n <= options.count && !output.unread.aborted; n++) {
        const { items: pods } = await client.list(RESOURCES.pods);
        const flow = await traceFlow(state, pods, { from, to, family });
        flows.push(flow);
        if (!isText(options)) continue;
        output.out(`${n > 1 ? '\n' : ''}${render(flow)}`);
      }
    } finally {
      transport.close();
    }
    const facts = renderFacts(options.count === 1 ? flows[0] : flows, options);
    if (facts !== null) output.out(facts);
    return flows.every(({ trace }) => trace?.answer.kind === 'answered') ? 0 : 1;
  },
});

const isText = (options: { readonly output: string; readonly json: boolean }) =>
  options.output === 'text' && !options.json;

function render({ explanation, trace, agreement }: TracedFlow): string {
  return trace === null || agreement === null
    ? renderExplanation(explanation)
    : renderTrace(explanation, trace, agreement);
}

import { createFlowExplainer } from '../cluster/explain-flow.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { requireCluster } from '../cluster/state.ts';
import { renderExplanation, renderShort } from '../observe/explain-text.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { choice, flag, usageError } from './options.ts';

export const command = defineCommand({
  name: 'explain',
  summary: 'explain the path of a packet, and why it fails',
  description: [
    'Explains what would happen to a packet: whether a process takes it, at which endpoints and with what odds; and, where it fails, why and what to change. Looks at the objects, the forwarding table of the node, the routes, the sockets that listen at the end, and the network policies; where something cannot be looked at, the verdict is UNKNOWN. Of the packet nothing is sent; a name is looked up from FROM by the name servers there.',
    'The exit status is 0 when the packet would be delivered at every endpoint.',
  ],
  arguments: [
    {
      name: 'FROM',
      help: 'pod/NAME, NAMESPACE/NAME, deploy/NAME, node/NAME, outside, or an address',
    },
    {
      name: 'TO',
      help: 'svc/NAME, pod/NAME, deploy/NAME, NAMESPACE/NAME, node/NAME, outside, a DNS name, a URL, or an address; then :PORT (the only TCP port where none is given) and /PROTOCOL',
    },
  ],
  synopsis: ['FROM TO[:PORT][/PROTOCOL]', '--who-can POD:PORT[/PROTOCOL]'],
  options: {
    name: NAME_OPTION,
    verbose: flag('print every step, with the rule or map key behind it', { short: 'v' }),
    ipv4: flag('use IPv4 addresses only', { short: '4' }),
    ipv6: flag('use IPv6 addresses only', { short: '6' }),
    output: choice('FORMAT', ['text', 'json'], 'text', 'text, or one JSON object', { short: 'o' }),
    json: flag('the same as -o json'),
  },
  examples: [
    'explain client svc/hello',
    'explain client http://hello/ -6',
    'explain outside node/node-1:30080/UDP --verbose',
  ],
  async run({ options, args: [from = '', to = ''] }, output) {
    requireRoot('explain');
    if (options.ipv4 && options.ipv6) throw usageError('explain', 'use one of -4 and -6');
    const family = options.ipv4 ? 'ipv4' : options.ipv6 ? 'ipv6' : null;
    const state = requireCluster(options.name);
    const explanation = await createFlowExplainer(state).explain({ from, to, family });
    const text = options.verbose ? renderExplanation : renderShort;
    const isJson = options.json || options.output === 'json';
    output.out(isJson ? `${JSON.stringify(explanation, null, 2)}\n` : text(explanation));
    return explanation.verdict === 'delivered' ? 0 : 1;
  },
});

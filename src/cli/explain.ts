import { compareModesHere } from '../cluster/agent-client.ts';
import { openCluster } from '../cluster/cluster-access.ts';
import type { RemoteCluster } from '../cluster/remote-cluster.ts';
import { parseServicePort } from '../cluster/service-port.ts';
import { createClient } from '../kube/client.ts';
import { httpTransport } from '../kube/transport.ts';
import { renderComparison } from '../modes/comparison-text.ts';
import { aroundPacket } from '../observe/explain-request-text.ts';
import { MARK, renderExplanation, renderShort } from '../observe/explain-text.ts';
import { defineCommand } from './command.ts';
import { wrapLines } from './help-text.ts';
import { NAME_OPTION } from './name-option.ts';
import { flag, text, usageError } from './options.ts';
import { FORMAT_OPTIONS, renderFacts } from './output-format.ts';
import { openRemote, ownCluster, REMOTE_OPTIONS, type RemoteValues } from './remote-option.ts';
import { paint } from './terminal.ts';
import { answerWhoCan, renderReaches } from './who-can.ts';

export const command = defineCommand({
  name: 'explain',
  summary: 'explain the path of a packet, and why it fails',
  description: [
    'Explains what would happen to a packet: which endpoints may get it, with their probabilities, and whether a process accepts it there; if the packet would not be delivered, it also prints the reason and the fix. Checks the objects, the forwarding table of the node, routes, listening sockets and network policies; the verdict is UNKNOWN if something cannot be checked. Does not send the packet. Names are resolved from FROM, by its own name servers.',
    'Of a URL that a gateway has (Ingress, Gateway API), it also prints what the gateway does with GET: the route, its filters, the backends with their shares, or the answer of the gateway itself; the path is then that of the packet to the gateway.',
    'With --modes: shows how each proxy mode implements a Service: its rules, map entries, virtual servers and listeners, their number, what a packet passes, and where its address is translated. Nothing is switched: the objects of the mode in use are compared with the kernel; those of the other modes are what they would write.',
    'The exit status is 0 if every endpoint would accept the packet.',
  ],
  arguments: [
    {
      name: 'FROM',
      optional: true,
      help: 'pod/NAME, NAMESPACE/NAME, deploy/NAME, node/NAME, outside (outside@ADDRESS: this client), or an address; pod/NAME@ADDRESS: a packet with this source',
    },
    {
      name: 'TO',
      optional: true,
      help: 'svc/NAME, pod/NAME, deploy/NAME, NAMESPACE/NAME, node/NAME, outside, a DNS name, a URL, or an address; then :PORT (default: the only TCP port) and /PROTOCOL',
    },
  ],
  synopsis: ['FROM TO[:PORT][/PROTOCOL]', '--who-can TARGET[:PORT][/PROTOCOL]', 'SERVICE --modes'],
  options: {
    name: NAME_OPTION,
    ...REMOTE_OPTIONS,
    verbose: flag('print every step, with its rule or map key', { short: 'v' }),
    ipv4: flag('use IPv4 addresses only', { short: '4' }),
    ipv6: flag('use IPv6 addresses only', { short: '6' }),
    ...FORMAT_OPTIONS,
    modes: flag('show one Service in all proxy modes, as each of them renders it'),
    node: text('NODE', 'with --modes: the node; default: the first one'),
    agent: text(
      'DIR',
      'with --modes: ask the agent of this machine, whose stateDir is DIR; for nodes of real clusters',
    ),
    'who-can': text(
      'TARGET',
      'list the clients that network policies allow to reach a port of a pod, or of each pod behind a Service, by selector',
    ),
  },
  examples: [
    'explain client svc/hello',
    'explain client http://hello/ -6',
    'explain outside node/node-1:30080/UDP --verbose',
    'explain outside https://shop.example/cart',
    'explain --who-can shop/web-0:8080',
    'explain --who-can svc/shop/web:80',
    'explain svc/hello --modes',
  ],
  asUser: (parsed) => ownCluster('explain', parsed),
  async run(parsed, output) {
    const { options, args } = parsed;
    const target = options['who-can'];
    const [from, to] = args;
    if (target !== null && (args.length > 0 || options.modes))
      throw usageError('explain', '--who-can does not take FROM, TO and --modes');
    if (options.ipv4 && options.ipv6) throw usageError('explain', 'use one of -4 and -6');
    if (target !== null) {
      const reach = await withExplainer(parsed, {
        remote: ({ client }) => answerWhoCan(client, target),
        local: async (name) => {
          const transport = httpTransport((await openCluster(name)).credentials);
          const client = createClient(transport, 'fairlead-explain');
          return await answerWhoCan(client, target).finally(() => transport.close());
        },
      });
      output.out(renderFacts(reach, options) ?? wrapLines(renderReaches(reach), output.columns));
      return 0;
    }
    if (options.modes) {
      if (from === undefined || to !== undefined)
        throw usageError('explain', '--modes takes one argument: svc/NAME');
      const { namespace, name } = parseServicePort(from);
      if (options.agent !== null && options.node !== null)
        throw usageError('explain', 'use one of --agent and --node');
      const comparison =
        options.agent !== null
          ? await compareModesHere(options.agent, { namespace, name })
          : await withExplainer(parsed, {
              remote: (cluster) => cluster.compareModes({ namespace, name, node: options.node }),
              local: async (cluster) =>
                (await openCluster(cluster)).compareModes({ namespace, name, node: options.node }),
            });
      const text = () => renderComparison(comparison, { whole: options.verbose });
      output.out(renderFacts(comparison, options) ?? text());
      return 0;
    }
    if (options.node !== null || options.agent !== null)
      throw usageError('explain', `--${options.node === null ? 'agent' : 'node'} is an option of --modes`);
    if (from === undefined || to === undefined)
      throw usageError('explain', `missing ${from === undefined ? 'FROM and TO' : 'TO'}`);
    const family = options.ipv4 ? 'ipv4' : options.ipv6 ? 'ipv6' : null;
    const explanation = await withExplainer(parsed, {
      remote: (cluster) => cluster.explain({ from, to, family }),
      local: async (name) => (await openCluster(name)).explain({ from, to, family }),
    });
    const { verdict } = explanation;
    const colour = verdict === 'delivered' ? 'good' : verdict === 'unknown' ? 'unknown' : 'bad';
    const mark = MARK[verdict];
    const plain = () =>
      options.verbose
        ? wrapLines(renderExplanation(explanation), output.columns)
        : renderShort(explanation, output.columns);
    const painted = () => plain().replace(`${mark}:`, `${paint(output, colour, mark)}:`);
    const text = () => aroundPacket(explanation, painted(), (lines) => wrapLines(lines, output.columns));
    output.out(renderFacts(explanation, options) ?? text());
    return explanation.verdict === 'delivered' ? 0 : 1;
  },
});

/** Asks the cluster that the options name, in its way. */
async function withExplainer<T>(
  parsed: { readonly options: RemoteValues; readonly given: ReadonlySet<string> },
  ways: {
    readonly remote: (cluster: RemoteCluster) => Promise<T>;
    readonly local: (name: string) => Promise<T>;
  },
): Promise<T> {
  const remote = await openRemote('explain', parsed);
  if (!remote) return await ways.local(parsed.options.name);
  return await ways.remote(remote).finally(() => remote.close());
}

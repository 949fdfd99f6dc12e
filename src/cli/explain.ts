import { askAgent } from '../cluster/agent-client.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, requireCluster } from '../cluster/state.ts';
import { type Client, createClient } from '../kube/client.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import {
  ANNOUNCEMENT_LABEL,
  ANNOUNCEMENT_NAMESPACE,
  announcingNode,
  ingressAddresses,
} from '../kube/load-balancer.ts';
import { httpTransport } from '../kube/transport.ts';
import { RESOURCES } from '../kube/types.ts';
import { parseTarget, type Target } from '../observe/explain-target.ts';
import { renderExplanation } from '../observe/explain-text.ts';
import type { Explanation } from '../observe/explain-view.ts';
import { defineCommand, NAME_OPTION } from './command.ts';
import { flag, text, usageError } from './options.ts';
import { answerWhoCan, renderReach } from './who-can.ts';

export const command = defineCommand({
  name: 'explain',
  summary: 'explain the path of a packet, step by step',
  description: [
    'Explains what would happen to a packet, step by step, with the object and the rule or map key for each step; if the packet would not be delivered, it also prints the reason and the fix. Sends no packets. The exit status is 0 if the packet would be delivered.',
  ],
  arguments: [
    {
      name: 'FROM',
      optional: true,
      help: 'a pod (NAME or NAMESPACE/NAME), node/NAME, outside, or an address',
    },
    {
      name: 'TO',
      optional: true,
      help: 'a pod, node/NAME, svc/NAMESPACE/NAME, a DNS name, or an address; then :PORT and /PROTOCOL',
    },
  ],
  synopsis: ['FROM TO[:PORT][/PROTOCOL]', '--who-can POD:PORT[/PROTOCOL]'],
  options: {
    name: NAME_OPTION,
    json: flag('print one JSON object'),
    'who-can': text('POD:PORT', 'list who may reach a port of a pod by the network policies, by selector'),
  },
  examples: [
    'explain client hello:80',
    'explain outside node/node-1:30080/UDP',
    'explain --who-can shop/web-0:8080',
  ],
  async run({ options, args }, output) {
    const target = options['who-can'];
    if (target === null && args.length < 2)
      throw usageError('explain', `missing ${args.length === 0 ? 'FROM and TO' : 'TO'}`);
    if (target !== null && args.length > 0)
      throw usageError('explain', '--who-can does not take FROM and TO');
    requireRoot('explain');
    const state = requireCluster(options.name);
    if (target !== null) {
      const reach = await answerWhoCan(state, target);
      output.out(options.json ? `${JSON.stringify(reach, null, 2)}\n` : renderReach(reach));
      return 0;
    }
    const [start = '', to = ''] = args;
    // A packet has no DNS name as its source: a single word is a pod.
    const from = parseTarget(start).kind === 'dns' && !start.includes('.') ? `default/${start}` : start;
    const node = await answeringNode(state, parseTarget(from), parseTarget(to));
    const explanation = await askAgent<Explanation>(state, node, 'POST', '/explain', {
      from,
      to,
      outsideAddresses: state.outsideAddresses,
    });
    output.out(options.json ? `${JSON.stringify(explanation, null, 2)}\n` : renderExplanation(explanation));
    return explanation.verdict === 'delivered' ? 0 : 1;
  },
});

/** Returns the node whose Service rules the packet enters first: its agent explains them. */
async function answeringNode(state: ClusterState, origin: Target, destination: Target): Promise<string> {
  const first = state.nodes[0]?.name ?? '';
  const known = ({ kind, name }: Target) =>
    state.nodes.find((node) =>
      kind === 'node' ? node.name === name : kind === 'address' && node.addresses.includes(name),
    )?.name;
  const here = known(origin);
  if (here !== undefined) return here;
  const there = known(destination);
  if (origin.kind !== 'pod' && there !== undefined) return there;
  const transport = httpTransport(readKubeconfig(clusterPaths(state.name).kubeconfig));
  try {
    const client = createClient(transport, 'fairlead-explain');
    if (origin.kind !== 'pod') return (await announcerOf(client, destination)) ?? first;
    const pods = await client.list(RESOURCES.pods);
    const named = pods.items.filter(({ metadata }) => metadata?.namespace === origin.namespace);
    const pod =
      named.find(({ metadata }) => metadata?.name === origin.name) ??
      named.find(({ metadata }) => metadata?.name?.startsWith(`${origin.name}-`));
    return pod?.spec?.nodeName ?? first;
  } finally {
    transport.close();
  }
}

/** Returns the node that announces a load-balancer address, or the first address of a Service; null: none. */
async function announcerOf(client: Client, { kind, namespace, name }: Target): Promise<string | null> {
  const [{ items: leases }, service] = await Promise.all([
    client.list(RESOURCES.leases, { namespace: ANNOUNCEMENT_NAMESPACE, labelSelector: ANNOUNCEMENT_LABEL }),
    kind === 'service'
      ? client.list(RESOURCES.services, { namespace, fieldSelector: `metadata.name=${name}` })
      : null,
  ]);
  const addresses = kind === 'address' ? [name] : (service?.items ?? []).flatMap(ingressAddresses);
  for (const address of addresses) {
    const node = announcingNode(leases, address);
    if (node !== null) return node;
  }
  return null;
}

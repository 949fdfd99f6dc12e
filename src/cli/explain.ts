import { askAgent } from '../cluster/agent-client.ts';
import { requireRoot } from '../cluster/requirements.ts';
import { type ClusterState, clusterPaths, DEFAULT_CLUSTER, requireCluster } from '../cluster/state.ts';
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
import { type Command, parseArguments, textOption } from './command.ts';

export const command: Command = {
  help: `Usage: fairlead explain FROM TO[:PORT][/PROTO] [--name NAME] [--json]

Says what would happen to a packet, step by step, with the object and the rule or map key behind each step; and, where
it fails, why and what to change. Nothing is sent. The exit status is 0 when the packet would be delivered.

  FROM          a pod (NAME, NAMESPACE/NAME), node/NAME, outside, or an address
  TO            a pod, node/NAME, svc/NAMESPACE/NAME, a DNS name, or an address
  --name NAME   the cluster (default: default)
  --json        print one JSON object

  fairlead explain client hello:80
  fairlead explain outside node/node-1:30080/UDP
`,
  async run(argv, output) {
    const parsed = parseArguments(
      'explain',
      argv,
      { name: { type: 'string' }, json: { type: 'boolean' } },
      { least: 2, most: 2, names: 'FROM and TO' },
    );
    requireRoot('explain');
    const state = requireCluster(textOption(parsed, 'name', DEFAULT_CLUSTER));
    const [start = '', to = ''] = parsed.positionals;
    // Packets do not come from names: a single word is a pod.
    const from = parseTarget(start).kind === 'dns' && !start.includes('.') ? `default/${start}` : start;
    const node = await answeringNode(state, parseTarget(from), parseTarget(to));
    const explanation = await askAgent<Explanation>(state, node, 'POST', '/explain', {
      from,
      to,
      outsideAddresses: state.outsideAddresses,
    });
    output.out(
      parsed.values['json'] ? `${JSON.stringify(explanation, null, 2)}\n` : renderExplanation(explanation),
    );
    return explanation.verdict === 'delivered' ? 0 : 1;
  },
};

/** The node whose tables the packet meets first: its agent knows them. */
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

/** The node that announces a load-balancer address, or the first address of a Service; null when none does. */
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

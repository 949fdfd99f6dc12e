import type { NodeSettings, ProbeBody } from '../agent/node-probes.ts';
import { CHECK_NAMESPACE, type CheckedServices } from '../conformance/check-cluster.ts';
import type { Place } from '../conformance/fixture.ts';
import type { Forger } from '../conformance/forged-flows.ts';
import type { PolicyOracle } from '../conformance/policy-flows.ts';
import { type CheckedPolicies, POLICY_NAMESPACES } from '../conformance/policy-scene.ts';
import type { Outcome, Prober } from '../conformance/probe.ts';
import type { Oracle } from '../conformance/run.ts';
import type { Drift, Mode } from '../dataplane/dataplane.ts';
import { type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { FactAnswer } from '../observe/facts.ts';
import type { PolicyVerdict } from '../policy/allows.ts';
import { ROW_PORTS } from '../policy/policy-rows.ts';
import type { Verdict } from '../service/decide.ts';
import type { RemoteCluster } from './remote-cluster.ts';

/** Nodes on which the check has pods; more would add nothing. */
const MAX_NODES = 3;
const FORGED_PATIENCE_MS = 20_000;
/** Networks for documentation (RFC 5737, RFC 3849): no host has these addresses. */
const TEST_NETWORKS: Readonly<Record<IPFamily, string>> = {
  ipv4: '198.51.100.0/24',
  ipv6: '2001:db8:1::/112',
};

/** How `check` works on a cluster whose agents run in pods: the agents send the packets. */
export interface RemoteCheck {
  readonly services: CheckedServices<Place>;
  /** Null: not all agents enforce network policies. */
  readonly policies: CheckedPolicies<Place> | null;
  readonly modes: ReadonlyMap<string, Mode>;
  readonly oracle: Oracle & PolicyOracle;
  readonly probe: Prober<Place>;
  readonly forge: Forger<Place>;
  /** Whether a node drops packets of pods with forged sources; else the plugin that connects them decides. */
  guardsPods(node: string): boolean;
  /** Whether processes of a node can send packets to an address that is not in any network of the cluster. */
  hasRoute(place: Place, address: string): Promise<boolean>;
  /** Compares the kernel of each node with its forwarding table. */
  verify(): Promise<(Drift & { node: string })[]>;
}

/** Chooses the nodes and reads what they report. Throws FairleadError if no agent answers. */
export async function openRemoteCheck(cluster: RemoteCluster, signal: AbortSignal): Promise<RemoteCheck> {
  const { client, agents } = cluster;
  const [reports, { items }, families, image] = await Promise.all([
    cluster.reports(),
    client.list(RESOURCES.nodes),
    readFamilies(cluster),
    readImage(cluster),
  ]);
  const answering = items.flatMap((node) => {
    const state = reports.find((one) => one.node === node.metadata?.name)?.state;
    return state && isUsable(node) ? [{ name: state.node, mode: state.mode, node }] : [];
  });
  const chosen = answering.slice(0, MAX_NODES);
  if (chosen.length === 0)
    throw new FairleadError(`no agent answers on a ready node; agents in the cluster: ${agents.length}`, {
      op: 'check',
      code: 'not-ready',
      hint: 'fairlead status',
    });
  const settings = new Map(
    await Promise.all(
      chosen.map(async ({ name }) => [name, (await cluster.ask(name, 'settings')) as NodeSettings] as const),
    ),
  );
  const [first] = settings.values();
  const modes = new Map(chosen.map(({ name, mode }) => [name, mode]));
  const checkNotEnded = () => {
    if (signal.aborted) throw new FairleadError('interrupted', { op: 'check', code: 'interrupted' });
  };
  let explainer: ReturnType<RemoteCluster['explainer']> | null = null;
  const services: CheckedServices<Place> = {
    client,
    signal,
    families,
    nodes: chosen.map(({ name, node }) => ({
      name,
      addresses: (node.status?.addresses ?? []).flatMap(({ type, address }) =>
        type === 'InternalIP' && address ? address : [],
      ),
    })),
    wireCidrs: families.map((family) => TEST_NETWORKS[family]),
    outsideAddresses: [],
    configuration: {
      masqueradeAll: first?.masqueradeAll ?? false,
      localDetection: first?.localDetection ?? true,
    },
    echo: (port, message) => container(image, message, ['echo', `--port=${port}`, `--message=${message}`]),
    idle: () => container(image, 'client', ['echo', '--port=8082']),
    place: (place) => place,
    allAddresses: (node) => new Set(settings.get(node)?.addresses),
    addRoutes: () => {},
    removeRoutes: () => {},
  };
  const enforcing = [...settings.values()].filter(({ enforcesPolicies }) => enforcesPolicies === true);
  return {
    modes,
    services,
    policies: enforcing.length < settings.size ? null : policiesOf(services, image),
    oracle: {
      mode: (node) => modes.get(node) ?? 'nftables',
      async decide(node, packets) {
        checkNotEnded();
        return ((await cluster.ask(node, 'decide', { packets })) as { verdicts: Verdict[] }).verdicts;
      },
      async decidePolicies(node, packets) {
        checkNotEnded();
        const answer = await cluster.ask(node, 'decide', { policyPackets: packets });
        return (answer as { verdicts: PolicyVerdict[] }).verdicts;
      },
      async explain(from, to) {
        checkNotEnded();
        // Opened now, when all pods of the check exist.
        explainer ??= cluster.explainer([CHECK_NAMESPACE, ...POLICY_NAMESPACES]);
        return await (await explainer).explain({ from, to, family: null });
      },
    },
    async probe({ from, ...request }) {
      checkNotEnded();
      const pod = from.kind === 'pod' ? Object.values(from.addresses) : null;
      return (await cluster.ask(from.node, 'probe', { ...request, pod } satisfies ProbeBody)) as Outcome;
    },
    async forge({ from, to, family, source }) {
      checkNotEnded();
      const addresses = (place: Place) => Object.values(place.addresses);
      const body = {
        pod: addresses(from),
        protocol: 'UDP',
        ...{ family, address: to.addresses[family] ?? '', port: 0, patience: FORGED_PATIENCE_MS },
        forged: { source, to: addresses(to) },
      } satisfies ProbeBody;
      return (await cluster.ask(from.node, 'probe', body)) as Outcome;
    },
    // An agent of an earlier version does not say it.
    guardsPods: (node) => settings.get(node)?.guardsPods === true,
    async hasRoute(place, destination) {
      const request = { kind: 'route', place: { kind: 'node', node: place.node }, destination };
      const answer = (await cluster.ask(place.node, 'fact', { request, pod: null })) as FactAnswer;
      return answer.kind === 'route' && answer.route !== null;
    },
    async verify() {
      let found: (Drift & { node: string })[] = [];
      for (const node of modes.keys()) {
        const { drifts } = (await cluster.ask(node, 'verify')) as { drifts: Drift[] };
        found = found.concat(drifts.map((drift) => ({ ...drift, node })));
      }
      return found;
    },
  };
}

/** The servers of the policy rows are containers: each serves one port of TCP and one of UDP. */
function policiesOf(services: CheckedServices<Place>, image: string): CheckedPolicies<Place> {
  return {
    ...services,
    pod: (ports) => ({
      // Containers without capabilities may then serve ports below 1024; the Pod Security standards allow it.
      securityContext: { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }] },
      containers: ROW_PORTS.TCP.map((port, index) => ({
        ...container(image, `port-${port}`, [
          'echo',
          `--port=${port}`,
          `--udp-port=${ROW_PORTS.UDP[index] ?? port}`,
        ]),
        readinessProbe: { tcpSocket: { port }, periodSeconds: 1 },
        ...(index === 0 ? { ports: [...ports] } : {}),
      })),
    }),
    async serve() {
      return () => {};
    },
    // The hostname of the pod.
    serverName: ({ name }) => name.slice(`${CHECK_NAMESPACE}-`.length).replace('/', '-'),
  };
}

const isUsable = ({ status, spec }: Node) =>
  !spec?.unschedulable &&
  status?.conditions?.some(({ type, status: value }) => type === 'Ready' && value === 'True') === true;

/** Returns the families of cluster IPs that pods have too. */
async function readFamilies({ client }: RemoteCluster): Promise<IPFamily[]> {
  const { spec } = await client.get(RESOURCES.services, 'kubernetes', 'default');
  const cidrs = await client.list(RESOURCES.serviceCidrs).catch(() => ({ items: [] }));
  const ofServices = [
    ...(spec?.clusterIPs ?? []),
    ...cidrs.items.flatMap((one) => one.spec?.cidrs ?? []).map((cidr) => cidr.split('/')[0] ?? ''),
  ];
  return [...new Set(ofServices.flatMap((address) => familyOf(address) ?? []))];
}

/** The agents' image has the servers of the check, and their nodes have it already. */
async function readImage({ client, agents }: RemoteCluster): Promise<string> {
  const [agent] = agents;
  const pod: Pod = await client.get(RESOURCES.pods, agent?.pod ?? '', agent?.namespace ?? '');
  const image = pod.spec?.containers[0]?.image;
  if (image) return image;
  throw new FairleadError('the pod of an agent has no image', { op: 'check', code: 'no-image' });
}

/** Restricted as the strictest Pod Security standard wants it. */
const container = (image: string, name: string, args: string[]) => ({
  name,
  image,
  imagePullPolicy: 'IfNotPresent' as const,
  args,
  securityContext: {
    allowPrivilegeEscalation: false,
    capabilities: { drop: ['ALL'] },
    runAsNonRoot: true,
    runAsUser: 65_534,
    seccompProfile: { type: 'RuntimeDefault' as const },
  },
});

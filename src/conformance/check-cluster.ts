import type { NetnsRef } from '../kernel/netns.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { deleteRoute, ROUTE_PROTOCOL, replaceRoute } from '../kernel/rtnetlink/routes.ts';
import { type Client, hasReason } from '../kube/client.ts';
import { type EndpointSlice, type Pod, RESOURCES, type Service } from '../kube/types.ts';
import { MANAGED_BY_LABEL, SERVICE_NAME_LABEL } from '../kube/well-known-labels.ts';
import { addressAt, canonicalAddress, FAMILY_NAMES, type IPFamily, parseCidr } from '../lib/address.ts';
import { FairleadError } from '../lib/errors.ts';
import type { Addresses, Fixture, FixtureConfiguration, LocalPlace, Place, Server } from './fixture.ts';
import type { Frontends } from './flows.ts';
import type { EndpointState, Scenario } from './scenarios.ts';

/** A cluster under test. */
export interface CheckedServices<P extends Place> {
  readonly client: Client;
  readonly families: readonly IPFamily[];
  readonly nodes: readonly { readonly name: string; readonly addresses: readonly string[] }[];
  /** The networks, one for each family, of the check's load-balancer addresses and external IPs. */
  readonly wireCidrs: readonly string[];
  /** Empty: there is no client outside. */
  readonly outsideAddresses: readonly string[];
  readonly configuration: FixtureConfiguration;
  /** The container of a server `fairlead echo`. */
  echo(port: number, message: string): Container;
  /** A container that does nothing. */
  idle(): Container;
  /** Completes a place; `uid`: of its pod. */
  place(place: Place, uid: string | null): P;
  /** All addresses of a node, bridges included. */
  allAddresses(node: string): Promise<ReadonlySet<string>> | ReadonlySet<string>;
  /** Adds routes of the client outside. */
  addRoutes(routes: readonly OutsideRoute[]): void;
  removeRoutes(routes: readonly OutsideRoute[]): void;
  /** Ends the wait for pods. */
  readonly signal?: AbortSignal;
}

type Container = NonNullable<Pod['spec']>['containers'][number];

/** A local cluster under test. */
export interface CheckedCluster
  extends Pick<
    CheckedServices<LocalPlace>,
    'client' | 'families' | 'nodes' | 'wireCidrs' | 'outsideAddresses' | 'configuration'
  > {
  nodeNetns(node: string): NetnsRef;
  /** The control group in which probes of a node and its pods open their sockets; null: that of this process. */
  controlGroup(node: string): string | null;
  readonly outsideNetns: NetnsRef;
  /** The network namespace of a running pod, by its node and uid. */
  podNetns(node: string, uid: string): NetnsRef;
}

export const CHECK_NAMESPACE = 'fairlead-check';

/** Offsets in the wire's network of the check's load-balancer addresses and external IPs. */
const FIRST_ADDRESS = 130;
const POD_WAIT_MS = 120_000;

/** The running pods and Services of the check. */
export interface CheckSetup<P extends Place> {
  readonly fixture: Fixture<P>;
  readonly frontends: ReadonlyMap<string, Frontends>;
  close(): Promise<void>;
}

/** Returns how the Services of a local cluster are checked. */
export const localServices = (cluster: CheckedCluster): CheckedServices<LocalPlace> => ({
  ...cluster,
  echo: (port, message) => ({
    name: message,
    image: 'fairlead',
    command: ['fairlead', 'echo', `--port=${port}`, `--message=${message}`],
  }),
  idle: () => ({ name: 'client', image: 'host', command: ['sleep', 'infinity'] }),
  place: (place, uid) => ({
    ...place,
    controlGroup: place.kind === 'outside' ? null : cluster.controlGroup(place.node),
    netns:
      place.kind === 'outside'
        ? cluster.outsideNetns
        : uid === null
          ? cluster.nodeNetns(place.node)
          : cluster.podNetns(place.node, uid),
  }),
  allAddresses: (node) => allAddresses(cluster.nodeNetns(node)),
  addRoutes: (routes) => addOutsideRoutes(cluster, routes),
  removeRoutes: (routes) => removeOutsideRoutes(cluster, routes),
});

/** The nodes that the check uses: servers are on the first two, clients on the first and the last. */
interface CheckedNodes<N> {
  readonly first: N;
  readonly second: N;
  readonly last: N;
  /** Those whose addresses clients use. */
  readonly entries: readonly N[];
}

type Node<P extends Place> = CheckedServices<P>['nodes'][number];

function choose<N>(nodes: readonly N[]): CheckedNodes<N> {
  const first = nodes[0];
  if (!first) throw new FairleadError('the cluster has no nodes', { op: 'check', code: 'no-node' });
  const last = nodes.at(-1) ?? first;
  return { first, second: nodes[1] ?? first, last, entries: [...new Set([first, last])] };
}

/**
 * Creates the check's namespace with its servers, clients and Services, and routes for the client outside.
 * Servers: two on the first node, one on the second; of three nodes the last has none.
 */
export async function setUpCheck<P extends Place>(
  cluster: CheckedServices<P>,
  scenarios: readonly Scenario[],
): Promise<CheckSetup<P>> {
  const { client } = cluster;
  const nodes = choose(cluster.nodes);
  const routes: { destination: string; via: string }[] = [];
  const close = async () => {
    cluster.removeRoutes(routes);
    await removeNamespace(client);
  };
  await removeNamespace(client);
  try {
    await client.create(RESOURCES.namespaces, { metadata: { name: CHECK_NAMESPACE } });
    const pods = await createPods(cluster, nodes);
    const fixture: Fixture<P> = {
      families: cluster.families,
      servers: serversOf(cluster, pods),
      places: placesOf(cluster, nodes, pods),
      nodeAddresses: new Map(
        await Promise.all(
          cluster.nodes.map(async ({ name }) => [name, await cluster.allAddresses(name)] as const),
        ),
      ),
      primary: new Map(cluster.nodes.map((node) => [node.name, addressesOf(cluster, node.addresses)])),
      entry: nodes.first.name,
      configuration: cluster.configuration,
    };
    const frontends = await createServices(cluster, scenarios, fixture, nodes);
    for (const one of frontends.values()) routes.push(...routesTo(cluster, nodes, one));
    cluster.addRoutes(routes);
    return { fixture, frontends, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Creates the servers and clients, and waits until they are ready. */
async function createPods<P extends Place>(
  cluster: CheckedServices<P>,
  { first, second, last }: CheckedNodes<Node<P>>,
): Promise<Pod[]> {
  const server = (name: string, node: string) =>
    pod(
      name,
      node,
      [cluster.echo(8080, 'hello'), cluster.echo(8081, 'second')].map((container, index) => ({
        ...container,
        readinessProbe: { tcpSocket: { port: 8080 + index }, periodSeconds: 1 },
      })),
    );
  const wanted = [
    server('server-1', first.name),
    server('server-2', first.name),
    server('server-3', second.name),
    pod('client-1', first.name, [cluster.idle()]),
    ...(last === first ? [] : [pod('client-2', last.name, [cluster.idle()])]),
  ];
  for (const one of wanted) await createPod(cluster.client, one);
  return await waitForPods(cluster.client, wanted.length, CHECK_NAMESPACE, cluster.signal);
}

const podAddresses = <P extends Place>(cluster: CheckedServices<P>, { status }: Pod): Addresses =>
  addressesOf(
    cluster,
    (status?.podIPs ?? []).flatMap(({ ip }) => ip ?? []),
  );

function serversOf<P extends Place>(cluster: CheckedServices<P>, pods: readonly Pod[]): Server[] {
  return pods
    .filter(({ metadata }) => metadata?.name?.startsWith('server-'))
    .map(
      (one): Server => ({
        name: one.metadata?.name ?? '',
        node: one.spec?.nodeName ?? '',
        addresses: podAddresses(cluster, one),
      }),
    )
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** Returns the places that clients are in: pods, nodes, and outside of each node. */
function placesOf<P extends Place>(
  cluster: CheckedServices<P>,
  { entries }: CheckedNodes<Node<P>>,
  pods: readonly Pod[],
): P[] {
  const outside = addressesOf(cluster, cluster.outsideAddresses);
  return [
    ...pods
      .filter(({ metadata }) => metadata?.name !== 'server-2' && metadata?.name !== 'server-3')
      .map((one) =>
        cluster.place(
          {
            name: `${CHECK_NAMESPACE}/${one.metadata?.name}`,
            kind: 'pod',
            node: one.spec?.nodeName ?? '',
            addresses: podAddresses(cluster, one),
          },
          one.metadata?.uid ?? '',
        ),
      ),
    ...entries.flatMap(({ name, addresses }) => [
      cluster.place(
        { name: `node/${name}`, kind: 'node', node: name, addresses: addressesOf(cluster, addresses) },
        null,
      ),
      ...(cluster.outsideAddresses.length === 0
        ? []
        : [cluster.place({ name: 'outside', kind: 'outside', node: name, addresses: outside }, null)]),
    ]),
  ];
}

/** Creates a Service for each scenario, with addresses of its own on the wire. Returns their frontends by scenario. */
async function createServices<P extends Place>(
  cluster: CheckedServices<P>,
  scenarios: readonly Scenario[],
  fixture: Fixture<P>,
  { entries }: CheckedNodes<Node<P>>,
): Promise<Map<string, Frontends>> {
  const frontends = new Map<string, Frontends>();
  let host = FIRST_ADDRESS;
  const take = () => {
    const at = host++;
    return Object.fromEntries(
      cluster.families.map((family, index) => {
        const cidr = parseCidr(cluster.wireCidrs[index] ?? '');
        return [family, cidr ? addressAt(cidr, at) : ''];
      }),
    ) as Addresses;
  };
  for (const scenario of scenarios) {
    const loadBalancer = new Map(entries.map((node) => [node.name, take()]));
    const externalIP = new Map(entries.map((node) => [node.name, take()]));
    const service = await createService(cluster, scenario, fixture, loadBalancer, externalIP);
    frontends.set(scenario.name, {
      clusterIP: addressesOf(cluster, service.spec?.clusterIPs ?? []),
      nodePort: service.spec?.ports?.[0]?.nodePort ?? 0,
      loadBalancer,
      externalIP,
    });
  }
  return frontends;
}

/** Returns the routes by which a client outside reaches a Service's addresses: each through one node. */
function routesTo<P extends Place>(
  cluster: CheckedServices<P>,
  { first, entries }: CheckedNodes<Node<P>>,
  { clusterIP, loadBalancer, externalIP }: Frontends,
): { destination: string; via: string }[] {
  return entries.flatMap((node) =>
    cluster.families.flatMap((family) => {
      const via = addressesOf(cluster, node.addresses)[family];
      if (!via) return [];
      const addresses = [
        loadBalancer.get(node.name)?.[family],
        externalIP.get(node.name)?.[family],
        ...(node === first ? [clusterIP[family]] : []),
      ];
      return addresses.flatMap((address) => (address ? [{ destination: hostRoute(address), via }] : []));
    }),
  );
}

function pod(name: string, nodeName: string, containers: Container[]): Pod {
  return {
    metadata: { name, namespace: CHECK_NAMESPACE },
    spec: { nodeName, containers, terminationGracePeriodSeconds: 0, automountServiceAccountToken: false },
  };
}

/** A namespace's service account is created a moment after the namespace. */
export async function createPod(client: Client, object: Pod): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      await client.create(RESOURCES.pods, object);
      return;
    } catch (error) {
      if (!hasReason(error, 'Forbidden') || attempt === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

export async function waitForPods(
  client: Client,
  count: number,
  namespace = CHECK_NAMESPACE,
  signal?: AbortSignal,
): Promise<Pod[]> {
  for (const until = Date.now() + POD_WAIT_MS; ; ) {
    signal?.throwIfAborted();
    const { items } = await client.list(RESOURCES.pods, { namespace });
    const isReady = (one: Pod) =>
      one.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;
    if (items.length === count && items.every(isReady)) return items;
    if (Date.now() > until) {
      const waiting = items.filter((one) => !isReady(one)).map((one) => one.metadata?.name);
      throw new FairleadError(`pods ${waiting.join(', ')} of the check did not become ready`, {
        op: 'check',
        code: 'not-ready',
        hint: `kubectl describe pods -n ${namespace}`,
      });
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function createService(
  cluster: Pick<CheckedServices<Place>, 'client' | 'families' | 'outsideAddresses'>,
  scenario: Scenario,
  fixture: Fixture,
  loadBalancer: ReadonlyMap<string, Addresses>,
  externalIP: ReadonlyMap<string, Addresses>,
): Promise<Service> {
  const { client, families } = cluster;
  const name = scenario.name;
  const protocols = ['TCP', 'UDP'] as const;
  const none = families.map((family) => (family === 'ipv4' ? '192.0.2.1/32' : '2001:db8::1/128'));
  const ranges = {
    none,
    outside:
      cluster.outsideAddresses.length === 0
        ? none
        : addressTexts(addressesOf(cluster, cluster.outsideAddresses)).map(hostRoute),
  };
  const created = await client.create(RESOURCES.services, {
    metadata: { name, namespace: CHECK_NAMESPACE },
    spec: {
      type: 'LoadBalancer',
      // The check writes the status itself.
      loadBalancerClass: 'fairlead.dev/check',
      ipFamilyPolicy: families.length > 1 ? 'RequireDualStack' : 'SingleStack',
      ports: protocols.flatMap((protocol) => [
        { name: `first-${protocol.toLowerCase()}`, port: 80, targetPort: 8080, protocol },
        { name: `second-${protocol.toLowerCase()}`, port: 81, targetPort: 8081, protocol },
      ]),
      externalIPs: [...externalIP.values()].flatMap(addressTexts),
      externalTrafficPolicy: scenario.externalLocal ? 'Local' : 'Cluster',
      internalTrafficPolicy: scenario.internalLocal ? 'Local' : 'Cluster',
      sessionAffinity: scenario.affinity ? 'ClientIP' : 'None',
      ...(scenario.sourceRanges === null ? {} : { loadBalancerSourceRanges: ranges[scenario.sourceRanges] }),
      ...scenario.spec,
    },
  } as Service);
  await client.patch(
    RESOURCES.services,
    name,
    'merge',
    {
      status: {
        loadBalancer: { ingress: [...loadBalancer.values()].flatMap(addressTexts).map((ip) => ({ ip })) },
      },
    },
    { namespace: CHECK_NAMESPACE, subresource: 'status' },
  );
  for (const family of families)
    await client.create(RESOURCES.endpointSlices, sliceOf(scenario, fixture, family));
  return created;
}

function sliceOf(scenario: Scenario, fixture: Fixture, family: IPFamily): EndpointSlice {
  const endpoints = fixture.servers.flatMap((server) => {
    const state = scenario.endpoint(server, fixture.servers);
    const address = server.addresses[family];
    if (state === null || address === undefined) return [];
    return [
      {
        addresses: [address],
        conditions: CONDITIONS[state],
        nodeName: server.node,
        targetRef: { kind: 'Pod', namespace: CHECK_NAMESPACE, name: server.name },
        ...(scenario.nodeHints ? { hints: { forNodes: [{ name: server.node }] } } : {}),
      },
    ];
  });
  return {
    metadata: {
      name: `${scenario.name}-${family}`,
      namespace: CHECK_NAMESPACE,
      labels: {
        [SERVICE_NAME_LABEL]: scenario.name,
        [MANAGED_BY_LABEL]: 'check.fairlead.dev',
      },
    },
    addressType: FAMILY_NAMES[family],
    ports: (['TCP', 'UDP'] as const).flatMap((protocol) => [
      { name: `first-${protocol.toLowerCase()}`, port: 8080, protocol },
      { name: `second-${protocol.toLowerCase()}`, port: 8081, protocol },
    ]),
    endpoints,
  };
}

const CONDITIONS: Readonly<
  Record<EndpointState, { ready: boolean; serving: boolean; terminating: boolean }>
> = {
  ready: { ready: true, serving: true, terminating: false },
  notReady: { ready: false, serving: false, terminating: false },
  terminating: { ready: false, serving: true, terminating: true },
  gone: { ready: false, serving: false, terminating: true },
};

export async function removeNamespace(client: Client, name = CHECK_NAMESPACE): Promise<void> {
  try {
    await client.delete(RESOURCES.namespaces, name);
  } catch (error) {
    if (hasReason(error, 'NotFound')) return;
    throw error;
  }
  for (;;) {
    try {
      await client.get(RESOURCES.namespaces, name);
    } catch (error) {
      if (hasReason(error, 'NotFound')) return;
      throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const addressTexts = (addresses: Addresses): string[] => Object.values(addresses);
/** Returns "ADDRESS/32", or /128. */
export const hostRoute = (address: string) => `${address}/${address.includes(':') ? 128 : 32}`;

export function addressesOf(
  cluster: { readonly families: readonly IPFamily[] },
  texts: readonly string[],
): Addresses {
  return Object.fromEntries(
    cluster.families.flatMap((family) => {
      const text = texts.find((one) => one.includes(':') === (family === 'ipv6'));
      return text === undefined ? [] : [[family, canonicalAddress(text) ?? text]];
    }),
  ) as Addresses;
}

function allAddresses(netns: NetnsRef): Set<string> {
  using socket = openRouteSocket(netns);
  return new Set(listAddresses(socket).map(({ address }) => address));
}

export type OutsideRoute = { readonly destination: string; readonly via: string };

export function addOutsideRoutes(cluster: CheckedCluster, routes: readonly OutsideRoute[]): void {
  using socket = openRouteSocket(cluster.outsideNetns);
  const device = getLink(socket, 'eth0').index;
  for (const route of routes) replaceRoute(socket, { ...route, device, protocol: ROUTE_PROTOCOL.fairlead });
}

export function removeOutsideRoutes(cluster: CheckedCluster, routes: readonly OutsideRoute[]): void {
  using socket = openRouteSocket(cluster.outsideNetns);
  for (const route of routes) deleteRoute(socket, route);
}

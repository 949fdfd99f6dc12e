import { isDeepStrictEqual } from 'node:util';
import { Gauge } from 'prom-client';
import { decideEgress } from '../egress/decide.ts';
import { openTables, removeGatewayTables } from '../egress/held-addresses.ts';
import { numberAddresses } from '../egress/marks.ts';
import type { EgressPod, EgressView } from '../egress/model.ts';
import { removePolicyRoutes } from '../egress/policy-routes.ts';
import { DROPPING, GATEWAY_TABLE, renderGateways } from '../egress/render.ts';
import { writeChanges } from '../egress/table-writer.ts';
import { EGRESS_GATEWAYS, type EgressGatewayObject } from '../kube/egress-gateway.ts';
import type { Informer } from '../kube/informer.ts';
import { keyOf, type Namespace, type Node, type Pod, RESOURCES } from '../kube/types.ts';
import { parseCidr } from '../lib/address.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { NodeNetwork } from '../network/node-network.ts';
import { type PeerNode, peerNode } from '../network/peer-node.ts';
import { POD_BRIDGE } from '../network/pod-bridge.ts';
import type { NetworkPod, PodNetwork } from '../network/pod-network.ts';
import { readPod, trimPod } from '../policy/pod-reader.ts';
import type { AgentContext } from './agent-context.ts';
import type { EgressSettings } from './announcer-messages.ts';
import { forgetFlowsOutside } from './egress-flows.ts';
import { type EgressState, egressState, gatewayNode, selectingAt } from './egress-objects.ts';
import { createPodArrivals } from './pod-arrivals.ts';
import { serviceNetworks } from './service-networks.ts';

/** Time that the start of a pod waits for its gateways; then it fails, and is retried. */
const ADMISSION_MS = 10_000;
/** A computation that took long is repeated only after this many times as long. */
const REST = 4;

/** The node's network; `sync` writes what depends on the other nodes again, soon. */
export interface OpenedNetwork {
  readonly network: NodeNetwork;
  readonly sync: () => void;
}

/** The egress gateways of a node. */
export interface EgressPart {
  /** Sets the pod network, and wraps it: pods start when the gateways that select them are in the kernel. */
  open(opened: OpenedNetwork, pods: PodNetwork): PodNetwork;
  /** What is in force; null: no gateway exists. */
  state(): EgressState | null;
  /** What decides about packets. */
  view(): EgressView;
  /** Whether a proxy on this node may open a connection for a pod: it would have the node's address. */
  mayProxy(pod: string, destination: string): boolean;
  /** Reports a pod whose connection was refused for that. */
  reportRefused(pod: string, destination: string): void;
  /** What the announcing thread has to know; null: there is no gateway. */
  settings(): EgressSettings | null;
  /** Calls back when `state` or `settings` may have changed. */
  onChange(listener: () => void): void;
  /** The announcing thread has seen the nodes that have the addresses. */
  setHolders(holders: ReadonlyMap<string, string>): void;
  /** The gateways, with their status; null before they are followed. */
  readonly objects: Informer<EgressGatewayObject>;
  readonly pods: () => readonly Pod[];
}

/** Removes the tables and routes of gateways from this node. */
export function removeEgress(): void {
  removeGatewayTables();
  removePolicyRoutes();
}

/** Follows EgressGateways; pods and namespaces of the whole cluster as soon as there is one. */
export function startEgress(context: AgentContext, nodes: Informer<Node>): EgressPart {
  const { configuration, clock, signal } = context;
  const logger = context.logger.child({ part: 'egress' });
  const listeners = new Set<() => void>();
  const tables = openTables(GATEWAY_TABLE, { clock, logger });
  const objects = context.follow(EGRESS_GATEWAYS, { optional: true, cacheAs: 'egressgateways' });
  const serviceCidrs = context.follow(RESOURCES.serviceCidrs, { optional: true });
  let opened: OpenedNetwork | null = null;
  let followed: { readonly pods: Informer<Pod>; readonly namespaces: Informer<Namespace> } | null = null;
  let state: EgressState | null = null;
  let settings: EgressSettings | null = null;
  let holders: ReadonlyMap<string, string> = new Map();
  let numbers: ReadonlyMap<string, number> = new Map();
  /** Why the kernel does not have what is known; null: it has. */
  let failure: unknown = null;
  let isWritten = false;
  let assigned: ReadonlyMap<string, string> = new Map();
  /** By the pods' uids: what this node has attached. */
  const attached = new Map<string, { readonly key: string; readonly ips: readonly string[] }>();
  const arrivals = createPodArrivals((name) => followed?.namespaces.get(name) !== undefined);
  let waiting: PromiseWithResolvers<void> | null = null;
  let running: Promise<void> | null = null;
  let isAgain = false;

  const podsNow = (): EgressPod[] => {
    const plugged = new Map([...attached.values()].map(({ key, ips }) => [key, ips] as const));
    const owners = new Map([...plugged].flatMap(([key, ips]) => ips.map((ip) => [ip, key] as const)));
    return (followed?.pods.list() ?? []).flatMap((pod) => {
      const found = readPod(pod, plugged.get(keyOf(pod)) ?? null);
      if (!found) return [];
      // An ended pod still names addresses that the node has given to another one.
      const addresses = found.addresses.filter((one) => (owners.get(one) ?? found.key) === found.key);
      return [{ ...found, addresses }];
    });
  };
  const peers = (): PeerNode[] => nodes.list().map(peerNode);

  async function compute(): Promise<void> {
    if (!opened) return;
    const { network, sync } = opened;
    if (objects.list().length === 0) {
      state = null;
      settings = null;
      if (isWritten) {
        for (const family of ['ipv4', 'ipv6'] as const) tables.write(family, null);
        network.setGateways(null);
        sync();
        isWritten = false;
      }
      return;
    }
    const pods = podsNow();
    const known = peers();
    const configured = (configuration.proxy?.serviceCidrs ?? []).flatMap(({ text }) => parseCidr(text) ?? []);
    state = egressState({
      objects: objects.list(),
      pods,
      labelsOf: (name) => {
        const found = followed?.namespaces.get(name);
        return found ? ((found.metadata?.labels ?? {}) as Record<string, string>) : null;
      },
      nodes: nodes.list(),
      peers: known,
      serviceNetworks: [...(serviceNetworks(serviceCidrs.list()) ?? []), ...configured],
    });
    const before = numbers;
    numbers = numberAddresses(state.wanted.keys(), before);
    const others = known.filter(({ name }) => name !== configuration.nodeName);
    const hops = Object.fromEntries(network.nextHops(others));
    settings = { addresses: [...numbers], hops, tunnel: network.tunnel, bridge: POD_BRIDGE };
    const ownPods = pods.filter(({ node }) => node === configuration.nodeName);
    const own = new Set([
      ...ownPods.flatMap(({ addresses }) => addresses),
      ...[...attached.values()].flatMap(({ ips }) => ips),
    ]);
    const rules = {
      gateways: selectingAt(state, configuration.nodeName, own),
      ...{ cluster: state.cluster, podNetworks: state.podNetworks, numbers },
      ...{ bridge: POD_BRIDGE, tunnel: network.tunnel },
      nextHops: others.flatMap(({ addresses }) => addresses),
    };
    for (const family of ['ipv4', 'ipv6'] as const)
      await writeChanges(tables, family, renderGateways(family, rules));
    isWritten = true;
    network.setGateways({ nodes: state.candidates, cluster: state.cluster });
    sync();
    endFormer(own);
  }

  /** Ends the connections of own pods that have had another source until now. */
  function endFormer(own: ReadonlySet<string>): void {
    const next = new Map<string, string>();
    for (const { sources } of state?.selecting ?? [])
      for (const [source, address] of sources)
        if (own.has(source) && !next.has(source)) next.set(source, address ?? '');
    const changed = [...next]
      .filter(([source, address]) => assigned.get(source) !== address)
      .map(([one]) => one);
    assigned = next;
    if (changed.length > 0 && state) forgetFlowsOutside(new Set(changed), state.cluster, logger);
  }

  /** Computes until nothing has changed meanwhile. Resolves when what was known at the call is in the kernel. */
  function changed(): Promise<void> {
    if (running) {
      isAgain = true;
      waiting ??= Promise.withResolvers();
      return waiting.promise;
    }
    running = (async () => {
      await new Promise((resolve) => setImmediate(resolve));
      const started = performance.now();
      try {
        if (ready.isDone) await compute();
        failure = null;
      } catch (error) {
        failure = error;
        if (!signal.aborted) {
          logger.error({ err: error }, `failed to program the egress gateways: ${messageOf(error)}`);
          retry();
        }
      }
      for (const listener of listeners) listener();
      const took = performance.now() - started;
      if (took > 20) await new Promise((resolve) => clock.after(took * REST, () => resolve(null)));
    })();
    const done = running.then(() => {
      running = null;
      const next = waiting;
      waiting = null;
      if (!isAgain) return;
      isAgain = false;
      changed().then(next?.resolve, next?.reject);
    });
    return done;
  }
  let cancelRetry = () => {};
  const retry = () => {
    cancelRetry();
    cancelRetry = clock.after(1000, () => void changed());
  };
  const look = () => void changed();
  const follow = () => {
    if (followed) return;
    followed = {
      namespaces: context.follow(RESOURCES.namespaces, {
        cacheAs: 'egress-namespaces',
        transform: trimNamespace,
      }),
      pods: context.follow(RESOURCES.pods, { cacheAs: 'egress-pods', transform: trimPod }),
    };
    const seen = () => {
      arrivals.namespaceSeen();
      look();
    };
    followed.namespaces.handle({ onAdd: seen, onUpdate: look, onDelete: look });
    const podSeen = (pod: Pod) => {
      if (pod.spec?.nodeName === configuration.nodeName) arrivals.podSeen(pod);
      look();
    };
    followed.pods.handle({
      onAdd: podSeen,
      onUpdate(pod, before) {
        if (!isDeepStrictEqual(usedOfPod(pod), usedOfPod(before))) podSeen(pod);
      },
      onDelete(pod) {
        arrivals.podGone(pod);
        look();
      },
    });
  };
  const ready = { isDone: false };
  const seen = () => {
    follow();
    look();
  };
  objects.handle({ onAdd: seen, onUpdate: look, onDelete: look });
  serviceCidrs.handle({ onAdd: look, onUpdate: look, onDelete: look });
  // Nodes report their state every few seconds: almost always the same one.
  nodes.handle({
    onAdd: look,
    onUpdate: (node, before) => {
      if (!isDeepStrictEqual(usedOf(node), usedOf(before))) look();
    },
    onDelete: look,
  });
  // Until all objects are read, the rules of an earlier agent stay in force.
  const started = Promise.all([objects.synced, nodes.synced, serviceCidrs.synced])
    .then(() => followed && Promise.all([followed.pods.synced, followed.namespaces.synced]))
    .then(() => {
      ready.isDone = true;
      if (objects.list().length === 0) removeEgress();
      return changed();
    });
  started.catch((error: unknown) => {
    if (!signal.aborted)
      logger.error({ err: error }, `egress gateways are not in force: ${messageOf(error)}`);
  });
  context.onClose(() => {
    cancelRetry();
    tables.close();
  });
  registerMetrics(context, tables, () => state);

  async function admit(pod: NetworkPod): Promise<void> {
    await started;
    if (!followed || objects.list().length === 0) return;
    await Promise.all([followed.pods.synced, followed.namespaces.synced]);
    await arrivals.podKnown(`${pod.namespace}/${pod.name}`, pod.uid);
    await arrivals.namespaceKnown(pod.namespace);
    await changed();
    if (failure !== null) throw failure;
  }
  const view = (): EgressView => ({
    gateways: state?.selecting ?? [],
    cluster: state?.cluster ?? [],
    holders,
  });
  return {
    objects,
    pods: () => followed?.pods.list() ?? [],
    open(next, pods) {
      opened = next;
      look();
      return {
        ...pods,
        async attach(pod, netns) {
          const result = await pods.attach(pod, netns);
          attached.set(pod.uid, { key: `${pod.namespace}/${pod.name}`, ips: result.ips });
          try {
            await within(context, pod, admit(pod));
          } catch (error) {
            await pods.detach(pod.uid);
            attached.delete(pod.uid);
            throw error;
          }
          return result;
        },
        async detach(uid) {
          await pods.detach(uid);
          attached.delete(uid);
        },
        async collect(keep, among) {
          const gone = await pods.collect(keep, among);
          for (const uid of gone) attached.delete(uid);
          return gone;
        },
      };
    },
    state: () => state,
    settings: () => settings,
    mayProxy: (source, destination) =>
      state === null || decideEgress(view(), { source, destination }).kind === 'stays',
    reportRefused(source, destination) {
      const pod = followed?.pods.list().find(({ status }) => status?.podIPs?.some(({ ip }) => ip === source));
      const message = `in this mode, connections to Services whose endpoints are outside the cluster (${destination}) cannot leave by the pod's egress gateway: refused`;
      logger.debug({ source, destination }, message);
      if (pod) context.podEvent(pod, 'Warning', 'EgressGatewayNotSupported', message);
    },
    view,
    onChange: (listener) => void listeners.add(listener),
    setHolders(next) {
      const moved = [...new Set([...holders.keys(), ...next.keys()])].filter((one) => {
        const [from, to] = [holders.get(one), next.get(one)];
        return from !== to && (from === configuration.nodeName || to === configuration.nodeName);
      });
      if (isDeepStrictEqual(next, holders)) return;
      holders = next;
      // This node translated them, or another one did: connection tracking has it the other way now.
      const sources = [...assigned]
        .filter(([, address]) => moved.includes(address))
        .map(([source]) => source);
      if (sources.length > 0 && state) forgetFlowsOutside(new Set(sources), state.cluster, logger);
      for (const listener of listeners) listener();
    },
  };
}

/** Returns what gateways depend on. */
const usedOf = (node: Node) => [gatewayNode(node), peerNode(node)];

const usedOfPod = ({ metadata, spec, status }: Pod) => [
  metadata?.uid,
  metadata?.labels,
  spec?.nodeName,
  status,
];

const trimNamespace = ({ metadata }: Namespace): Namespace => {
  const { name = '', resourceVersion = '', labels = {} } = metadata ?? {};
  return { metadata: { name, resourceVersion, labels } };
};

async function within({ clock }: AgentContext, pod: NetworkPod, done: Promise<void>): Promise<void> {
  const key = `${pod.namespace}/${pod.name}`;
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(ADMISSION_MS, () =>
      reject(
        new FairleadError(
          `the egress gateways of pod ${key} were not programmed within ${ADMISSION_MS / 1000} s`,
          {
            op: 'attach pod',
            code: 'ETIMEDOUT',
            object: key,
            hint: "see the agent's log for errors when reading pods and EgressGateways",
          },
        ),
      ),
    );
  });
  try {
    await Promise.race([done, late]);
  } finally {
    cancel();
  }
}

function registerMetrics(
  { registry }: AgentContext,
  tables: ReturnType<typeof openTables>,
  state: () => EgressState | null,
): void {
  new Gauge({
    name: 'fairlead_egress_gateway_pods',
    help: 'Pods that an EgressGateway selects, as this node knows them',
    labelNames: ['gateway'],
    registers: [registry],
    collect() {
      this.reset();
      for (const { name, sources } of state()?.selecting ?? []) this.set({ gateway: name }, sources.size);
    },
  });
  new Gauge({
    name: 'fairlead_egress_gateway_dropped_packets',
    help: 'Packets of selected pods that were dropped because they would have left with another source, since the table was written',
    labelNames: ['family', 'reason'],
    registers: [registry],
    collect() {
      this.reset();
      for (const family of ['ipv4', 'ipv6'] as const)
        for (const reason of [DROPPING.leaving, DROPPING.addressless])
          this.set({ family, reason }, tables.get(family)?.packets(reason) ?? 0);
    },
  });
}

import { networkInterfaces } from 'node:os';
import type { ProxyPolicies } from '../dataplane/userspace/pool-listener.ts';
import type { AnswerHold } from '../dns/answer-hold.ts';
import { openAddressFlows } from '../kernel/conntrack/address-flows.ts';
import { hasReason } from '../kube/client.ts';
import { EGRESS_NAMES } from '../kube/egress-names.ts';
import type { Informer } from '../kube/informer.ts';
import { keyOf, type NetworkPolicy, type Node, type Pod, RESOURCES } from '../kube/types.ts';
import type { SocketAddress } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { NetworkPod, PodNetwork } from '../network/pod-network.ts';
import { createAddressOwners } from '../policy/address-owners.ts';
import { allows, type PolicyVerdict } from '../policy/allows.ts';
import { readClusterPolicy } from '../policy/cluster-policy-reader.ts';
import {
  type Enforcement,
  type PolicyRefusal,
  removePolicies,
  startEnforcement,
} from '../policy/enforcement.ts';
import { followClusterPolicies } from '../policy/follow-cluster-policies.ts';
import type { LearnedNames } from '../policy/learned-names.ts';
import { trimPod } from '../policy/pod-reader.ts';
import { createPolicyTable, type PolicyTable } from '../policy/policy-table.ts';
import { mayBeDenied, type UnansweredConnection } from '../policy/silence.ts';
import type { AgentContext } from './agent-context.ts';
import { dnsPod } from './dns-pod.ts';
import { createPodArrivals, type PodArrivals } from './pod-arrivals.ts';
import { createPolicyMetrics } from './policy-metrics.ts';
import { createNodeNames, startPolicyNames } from './policy-names.ts';
import { createNoDnsReport, warnOfNames, warnUnsupported } from './policy-warnings.ts';

/** How long the start waits for the answer whether policies may be read. */
const ANSWER_MS = 5000;
/** Time that the start of a pod waits for its policies; then it fails, and is retried. */
const ADMISSION_MS = 10_000;

/** Enforces the NetworkPolicies for a node's pods. */
export interface PolicyPart extends ProxyPolicies {
  readonly table: PolicyTable;
  /** Holds answers of the node's DNS server until the kernel allows what they lead to. */
  readonly hold: AnswerHold;
  /** What pods got for names. */
  readonly learned: LearnedNames;
  /** Wraps the pod network: pods start when their policies are in the kernel. */
  guard(network: PodNetwork): PodNetwork;
  /** Resolves when the kernel has the policies that are known at the time of the call. */
  programmed(): Promise<void>;
  /** Returns true while no policy is enforced because the API server forbids this agent to read them. */
  isForbidden(): boolean;
  /** Resolves when the policies that exist at startup are known, or forbidden, or the agent ends. */
  readonly ready: Promise<void>;
  /**
   * Sets the addresses of the other nodes, if proxies on the nodes, which check the policies themselves, handle packets to Services; null
   * (default): they do not.
   */
  setProxies(addresses: readonly string[] | null): void;
  /** Sets the addresses that are treated as DNS pods; default: the cluster DNS addresses of the configuration. */
  setNameServers(addresses: readonly string[]): void;
  /** See `mayBeDenied` of src/policy. */
  mayBeDenied(connection: Omit<UnansweredConnection, 'node'>): boolean;
}

/**
 * Follows and enforces policies. `nodes`: the agent's copy of the nodes, by which policies of the whole cluster may select
 * addresses. `isAllowed`: what `policyAccess` found; pods start without policies until the API server allows to read them.
 */
export function startPolicies(
  context: AgentContext,
  nodes: Informer<Node>,
  { isAllowed }: { readonly isAllowed: boolean },
): PolicyPart {
  const { configuration, logger: parent, clock, registry } = context;
  const logger = parent.child({ part: 'policy' });
  const learned = createNodeNames(context, nodes, () => table);
  const table = createPolicyTable(configuration.nodeName, (pod, group, address) =>
    learned.find(pod, group.id, address),
  );
  const metrics = createPolicyMetrics(registry, table, () => enforcement);
  let enforcement: Enforcement | null = null;
  let proxies: readonly string[] | null = null;
  let nameServers = configuration.dns?.addresses ?? [];
  const changed = () => enforcement?.changed();
  /** Resolves when all needed objects have been read once; rejects when the agent ends. */
  let objects: Promise<unknown> | null = null;

  let isRefused = !isAllowed;
  const refusal = Promise.withResolvers<void>();
  // Policies that have been read stay in force.
  const isForbidden = () => isRefused && !policies.hasSynced;

  const arrivals = createPodArrivals((namespace) => table.namespaceLabels(namespace) !== null);

  const policies: Informer<NetworkPolicy> = context.follow<NetworkPolicy>(RESOURCES.networkPolicies, {
    cacheAs: 'networkpolicies',
    onMissingRule(rule) {
      if (!rule) return;
      isRefused = true;
      refusal.resolve();
    },
    transform: trimPolicy,
  });
  const reportNoDns = createNoDnsReport(context, table, logger);
  const setPolicy = (policy: NetworkPolicy) => {
    table.setPolicy(policy);
    warnOfNames(logger, policy);
    reportNoDns();
    objects ??= followObjects();
    changed();
  };
  policies.handle({
    onAdd: setPolicy,
    onUpdate: setPolicy,
    onDelete(policy) {
      table.deletePolicy(keyOf(policy));
      changed();
    },
  });

  const podObjects: { current: Pick<Informer<Pod>, 'get'> | null } = { current: null };
  const beginning = Promise.withResolvers<unknown>();
  const { hold, names } = startPolicyNames(context, {
    ...{ table, learned },
    started: beginning.promise,
    programmed: async () => await enforcement?.programmed(),
    podObject: (key) => podObjects.current?.get(key) ?? null,
  });

  let areNodesFollowed = false;
  const clusterPolicies = followClusterPolicies(
    { ...context, logger },
    {
      onSet(kind, object) {
        const { policy, unsupported } = readClusterPolicy(kind, object);
        warnUnsupported(logger, policy, unsupported);
        table.setClusterPolicy(policy);
        reportNoDns();
        followNodes();
        objects ??= followObjects();
        changed();
      },
      onDelete(key) {
        table.deletePolicy(key);
        changed();
      },
    },
  );
  // Reported by `started`.
  clusterPolicies.catch(() => {});
  function followNodes(): void {
    if (areNodesFollowed) return;
    areNodesFollowed = true;
    nodes.handle({
      onAdd: (one) => set(() => table.setNode(one)),
      onUpdate: (one) => set(() => table.setNode(one)),
      onDelete: (one) => set(() => table.deleteNode(keyOf(one))),
    });
  }

  /** Pods and namespaces of the whole cluster are watched as soon as a policy exists. */
  function followObjects(): Promise<unknown> {
    if (nameServers.length > 0) table.setPod(dnsPod(nameServers));
    return followPodsAndNamespaces(context, { table, set, arrivals, former, podObjects });
  }

  const attachedPods = () => attachments.pods();
  const former = endFormerFlows(context, logger, {
    attachedPods,
    programmed: () => enforcement?.programmed(),
  });

  function set(change: () => void, pod?: Pod): void {
    change();
    if (pod) former.podSeen(pod);
    if (pod?.spec?.nodeName === configuration.nodeName) arrivals.podSeen(pod);
    changed();
  }

  if (isRefused) refusal.resolve();
  // Until all objects are read, the rules of an earlier agent stay in force.
  const read = Promise.all([policies.synced, clusterPolicies, nodes.synced]).then(() => objects);
  const started = read.then(async () => {
    enforcement = startEnforcement({
      policies: table,
      clock,
      logger,
      names,
      proxies: () => proxies,
      onProgrammed: metrics.programmed,
      onFailure: metrics.failed,
      onRefused: (fresh) => reportRefusals(context, fresh),
    });
    enforcement.rewrite();
    await enforcement.programmed();
    if (isRefused) logger.info({}, 'network policies are enforced now');
  });
  beginning.resolve(Promise.race([started, refusal.promise]));
  started.catch((error: unknown) => {
    if (!context.signal.aborted)
      logger.error({ err: error }, `network policies are not enforced: ${messageOf(error)}`);
  });
  context.onClose(async () => {
    await enforcement?.close();
  });

  /** Resolves when the kernel has the policies of an attached pod. */
  async function programmed(pod: NetworkPod): Promise<void> {
    await Promise.race([started, refusal.promise]);
    if (isForbidden()) return;
    await started;
    if (!objects) return;
    await objects;
    await arrivals.podKnown(`${pod.namespace}/${pod.name}`, pod.uid);
    // By the labels of its namespace, policies of the whole cluster may select the pod.
    if (table.clusterPolicies().length > 0) await arrivals.namespaceKnown(pod.namespace);
    await enforcement?.programmed();
    refuseExposed(enforcement, pod);
  }

  const verdictOf = (...connection: [string, SocketAddress, 'TCP' | 'UDP']) =>
    verdictAt(configuration.nodeName, table, ...connection);
  const attachments = createAttachments({ table, arrivals, changed });
  return {
    ...{ table, hold, learned },
    async programmed() {
      await started;
      await objects;
      await enforcement?.programmed();
    },
    isForbidden,
    ready: Promise.race([read, refusal.promise]).then(
      () => {},
      () => {},
    ),
    setProxies(wanted) {
      const before = proxies;
      proxies = wanted;
      if ((before === null) !== (wanted === null)) enforcement?.rewrite();
      else if (wanted?.join() !== before?.join()) enforcement?.proxiesChanged();
    },
    setNameServers(addresses) {
      nameServers = addresses;
      if (objects) set(() => table.setPod(dnsPod(addresses)));
    },
    mayBeDenied: (connection) =>
      table.policyCount > 0 && mayBeDenied(table, { ...connection, node: configuration.nodeName }),
    admits: (...connection) => table.policyCount === 0 || verdictOf(...connection).isAllowed,
    denied(client, endpoint, protocol) {
      const { egress, ingress } = verdictOf(client, endpoint, protocol);
      const end = egress.isAllowed ? ingress : egress;
      if (!end.isAllowed) metrics.denied(endpoint.ip.includes(':') ? 'ipv6' : 'ipv4', end);
    },
    guard: (network) => guarded(network, attachments, (pod) => inAdmissionTime(clock, pod, programmed(pod))),
  };
}

const isOwnAddress = (address: string): boolean =>
  Object.values(networkInterfaces()).some((list) => list?.some((one) => one.address === address));

/** Removes the rules of an earlier agent, if policies are not enforced. */
export const removeLeftPolicies = (): Promise<void> => removePolicies();

/** The result of a first list of policies; "unknown": it was not answered, or failed for another reason. */
export type PolicyAccess = 'allowed' | 'unknown' | 'forbidden' | 'not-served';

/** Asks the API server for policies, which an older cluster role may not allow the agent to read. */
export async function policyAccess({ client, clock, logger, signal }: AgentContext): Promise<PolicyAccess> {
  const late = new AbortController();
  const cancel = clock.after(ANSWER_MS, () => late.abort());
  const notEnforced = (error: unknown, fix: string) =>
    logger.error({ part: 'policy' }, `network policies are not enforced: ${messageOf(error)}; ${fix}`);
  try {
    const options = { limit: 1, signal: AbortSignal.any([signal, late.signal]) };
    await client.list(RESOURCES.networkPolicies, options).finally(cancel);
    return 'allowed';
  } catch (error) {
    if (hasReason(error, 'NotFound')) {
      notEnforced(error, 'start the agent again when the API server serves them');
      return 'not-served';
    }
    if (!hasReason(error, 'Forbidden')) return 'unknown';
    notEnforced(error, 'allow the agent to list and watch networkpolicies, namespaces and pods');
    return 'forbidden';
  }
}

/** Throws FairleadError if the policies of a pod are not programmed in time. */
async function inAdmissionTime(clock: Clock, pod: NetworkPod, programmed: Promise<void>): Promise<void> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(ADMISSION_MS, () =>
      reject(
        new FairleadError(
          `the network policies of pod ${pod.namespace}/${pod.name} were not programmed within ${ADMISSION_MS / 1000} s`,
          {
            op: 'attach pod',
            code: 'ETIMEDOUT',
            object: `${pod.namespace}/${pod.name}`,
            hint: "see the agent's log for errors when reading or programming NetworkPolicies",
          },
        ),
      ),
    );
  });
  try {
    await Promise.race([programmed, late]);
  } finally {
    cancel();
  }
}

function reportRefusals({ nodeEvent }: AgentContext, fresh: readonly PolicyRefusal[]): void {
  const [first] = fresh;
  if (!first) return;
  const more = fresh.length > 1 ? ` (and ${fresh.length - 1} more)` : '';
  nodeEvent(
    'Warning',
    'PolicyNotProgrammed',
    `the kernel rejects a part of the network policies, which is left out and tried again: ${first.error.message}${more}`,
  );
}

/** Ends the connections that policies of this node allowed to or from the former pod of an address. */
function endFormerFlows(
  { onClose }: AgentContext,
  logger: Logger,
  options: {
    /** The keys of the pods whose networks this node has attached. */
    readonly attachedPods: () => Iterable<string>;
    /** Resolves when the kernel has the policies; undefined: they are not enforced yet. */
    readonly programmed: () => Promise<void> | undefined;
  },
) {
  const owners = createAddressOwners();
  const flows = openAddressFlows(undefined);
  onClose(() => flows.close());
  return {
    podSeen(pod: Pod): void {
      const reused = owners.set(pod);
      if (reused.length === 0) return;
      // The pod network of this node has ended them before the pod started; by now some may be the pod's own.
      if ([...options.attachedPods()].includes(keyOf(pod))) return;
      const ended = options.programmed()?.then(() => flows.forget(reused));
      ended?.catch((error: unknown) =>
        logger.warn(
          { err: error, addresses: reused },
          `failed to end the former pod's flows: ${messageOf(error)}`,
        ),
      );
    },
    podGone: (pod: Pod) => owners.delete(pod.metadata?.uid ?? ''),
  };
}

/** Follows pods and namespaces. Resolves when all have been read once. */
function followPodsAndNamespaces(
  context: AgentContext,
  followers: {
    readonly table: PolicyTable;
    /** Changes the table; `pod`: the pod that is new or was changed. */
    readonly set: (change: () => void, pod?: Pod) => void;
    readonly arrivals: PodArrivals;
    readonly former: { podGone(pod: Pod): void };
    /** Receives the followed pods. */
    readonly podObjects: { current: Pick<Informer<Pod>, 'get'> | null };
  },
): Promise<unknown> {
  const { table, set, arrivals, former, podObjects } = followers;
  const namespaces = context.follow(RESOURCES.namespaces, {
    cacheAs: 'namespaces',
    transform: ({ metadata }) => {
      const { name = '', resourceVersion = '', labels = {} } = metadata ?? {};
      return { metadata: { name, resourceVersion, labels } };
    },
  });
  namespaces.handle({
    onAdd(one) {
      set(() => table.setNamespace(one));
      arrivals.namespaceSeen();
    },
    onUpdate: (one) => set(() => table.setNamespace(one)),
    onDelete: (one) => set(() => table.deleteNamespace(keyOf(one))),
  });
  const pods = context.follow(RESOURCES.pods, { transform: trimPod, cacheAs: 'policy-pods' });
  podObjects.current = pods;
  pods.handle({
    onAdd: (pod) => set(() => table.setPod(pod), pod),
    onUpdate: (pod) => set(() => table.setPod(pod), pod),
    onDelete(pod) {
      arrivals.podGone(pod);
      former.podGone(pod);
      set(() => table.deletePod(keyOf(pod)));
    },
  });
  return Promise.all([namespaces.synced, pods.synced]);
}

/** The attachments of pods to the node's network. */
interface Attachments {
  /** The keys of the attached pods. */
  pods(): Iterable<string>;
  add(pod: NetworkPod, addresses: readonly string[]): void;
  /** Forgets an attachment that was removed. */
  forget(uid: string): void;
}

function createAttachments({
  table,
  arrivals,
  changed,
}: {
  readonly table: PolicyTable;
  readonly arrivals: PodArrivals;
  readonly changed: () => void;
}): Attachments {
  const attached = new Map<string, string>();
  return {
    pods: () => attached.values(),
    add(pod, addresses) {
      const key = `${pod.namespace}/${pod.name}`;
      attached.set(pod.uid, key);
      table.plugIn(key, pod.uid, addresses);
      changed();
    },
    forget(uid) {
      const key = attached.get(uid);
      if (key === undefined) return;
      attached.delete(uid);
      arrivals.forget(key);
      table.unplug(key, uid);
      changed();
    },
  };
}

/** Wraps a pod network: pods start when `admit` resolves, which waits until their policies are in the kernel. */
function guarded(
  network: PodNetwork,
  { add, forget }: Attachments,
  admit: (pod: NetworkPod) => Promise<void>,
): PodNetwork {
  return {
    ...network,
    async attach(pod, netns) {
      const result = await network.attach(pod, netns);
      add(pod, result.ips);
      try {
        await admit(pod);
      } catch (error) {
        await network.detach(pod.uid);
        forget(pod.uid);
        throw error;
      }
      return result;
    },
    async detach(uid) {
      await network.detach(uid);
      forget(uid);
    },
    async collect(keep, among) {
      const gone = await network.collect(keep, among);
      for (const uid of gone) forget(uid);
      return gone;
    },
  };
}

/** Throws if more reaches a pod, or leaves it, than its policies allow. */
function refuseExposed(enforcement: Enforcement | null, pod: NetworkPod): void {
  const object = `${pod.namespace}/${pod.name}`;
  const refusal = enforcement?.exposes(object);
  if (!refusal) return;
  throw new FairleadError(
    `the network policies of pod ${object} are not in the kernel: ${refusal.error.message}`,
    { op: 'attach pod', code: 'EIO', object, cause: refusal.error },
  );
}

function trimPolicy({ metadata, spec, ...rest }: NetworkPolicy): NetworkPolicy {
  const { managedFields, annotations, ...others } = metadata ?? {};
  const names = annotations?.[EGRESS_NAMES];
  const kept = { ...others, ...(names === undefined ? {} : { annotations: { [EGRESS_NAMES]: names } }) };
  return { ...rest, metadata: kept, ...(spec ? { spec } : {}) };
}

/** Returns the verdict about a connection of a client to an endpoint. */
function verdictAt(
  node: string,
  table: PolicyTable,
  client: string,
  { ip, port }: SocketAddress,
  protocol: 'TCP' | 'UDP',
): PolicyVerdict {
  const packet = { source: client, destination: ip, port, protocol };
  // Traffic from this node itself always reaches its pods.
  const isOwn = table.podAt(client) === null && isOwnAddress(client);
  return allows(table, isOwn ? { ...packet, fromNode: node } : packet);
}

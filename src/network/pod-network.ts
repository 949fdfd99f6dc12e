import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { openAddressFlows } from '../kernel/conntrack/address-flows.ts';
import type { NetnsRef } from '../kernel/netns.ts';
import { findLink, listBridgePorts, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { deleteNeighbour, listForwardingEntries, listNeighbours } from '../kernel/rtnetlink/neighbours.ts';
import { type Cidr, cidrContains } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { FairleadError, hasCode } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { AddressJournal } from './address-journal.ts';
import type { PoolUsage } from './assigned-addresses.ts';
import { openAssignedAddresses } from './assigned-addresses.ts';
import type { AddressOwner } from './connection-bound.ts';
import { type HostPort, openHostPorts, portsClash } from './host-ports.ts';
import type { NodeNetwork } from './node-network.ts';
import { POD_BRIDGE } from './pod-bridge.ts';
import {
  createPodLink,
  hasPortSettings,
  isPlugged,
  isPodPort,
  type LinkedPod,
  podLinkProblem,
  podMac,
  podPort,
  setUpPodLink,
  setUpPort,
  shutDown,
  untilPodLinkWorks,
} from './pod-link.ts';
import { openPortRemoval } from './port-removal.ts';
import { type GuardCounts, openSourceGuard } from './source-guard.ts';
import type { GuardedPort } from './source-guard-rules.ts';
import { openUnusedAddresses } from './unused-addresses.ts';

/** The parts of a pod that its network needs. */
export interface NetworkPod extends LinkedPod {
  readonly namespace: string;
  readonly name: string;
  /** Its host ports; default: none. */
  readonly hostPorts?: readonly HostPort[];
}

/** Attaches pods to a node's network. */
export interface PodNetwork {
  /**
   * Creates `eth0` in the namespace of a pod's sandbox with an address of each of the node's pod networks,
   * and returns the addresses, in the order of the networks. A pod that has addresses keeps them; attaching
   * it again is not an error. After an error no partial state is left. Throws "NodePorts" if another pod
   * has one of its host ports.
   */
  attach(pod: NetworkPod, netns: NetnsRef): Promise<{ ips: string[] }>;
  /** Detaches a pod and releases its addresses; an unknown pod is not an error. */
  detach(uid: string): Promise<void>;
  /** Returns a pod's addresses, or null. */
  addresses(uid: string): string[] | null;
  /**
   * Detaches all pods except these, and removes devices of unknown pods. Returns the uids. `among`: only pods whose uid has
   * this prefix; default: those of the node's kubelet.
   */
  collect(keep: ReadonlySet<string>, among?: string): Promise<string[]>;
  /** Returns all pods with addresses. */
  uids(): string[];
  /** Describes the problem of a pod's network; null: none. */
  problem(uid: string, netns: NetnsRef, device?: string): string | null;
  /** Reverts changes by other programs to the node's ends of pods and the host ports; returns a description of them. */
  repair(): Promise<string[]>;
  /** Returns the MAC of the pod with an address; null: no such pod. */
  macOf(address: string): string | null;
  /** Returns the pod that sends with an address; null: no pod of this node. */
  ownerOf(address: string): AddressOwner | null;
  /** Sets the networks whose addresses a pod may use in addition to its own, for this and later attachments. */
  allowSources(pod: string, networks: readonly Cidr[]): Promise<void>;
  /** The pods' packets that were dropped for their source, by pod ("namespace/name"); null: the kernel cannot drop them. */
  droppedSources(): DroppedSources | null;
  /** Returns how many addresses of each of the node's pod networks pods have. */
  usage(): readonly PoolUsage[];
  /** Stops; pods stay attached. */
  close(): void;
}

export interface DroppedSources extends Omit<GuardCounts, 'byPort'> {
  readonly byPod: ReadonlyMap<string, number>;
}

export interface PodNetworkOptions {
  readonly network: NodeNetwork;
  /** The node's folder, in which "pod-addresses.jsonl" is kept. */
  readonly stateDir: string;
  /** Whether to fail on a kernel that cannot keep pods from sending with others' addresses. Default: true. */
  readonly requiresGuard?: boolean;
  /** See KeptTablesOptions. */
  readonly owned?: boolean;
  readonly clock?: Clock;
  readonly logger?: Logger;
}

const JOURNAL_FILE = 'pod-addresses.jsonl';

/** Opens the pod network of a node, with the current addresses of its pods. */
export function openPodNetwork({
  network,
  stateDir,
  requiresGuard = true,
  ...options
}: PodNetworkOptions): PodNetwork {
  const journal = new AddressJournal(join(stateDir, JOURNAL_FILE));
  const removal = openPortRemoval(network.netns);
  const flows = openAddressFlows(network.netns);
  const assigned = openAssignedAddresses(
    journal,
    network.gateways.map(({ cidr }) => cidr),
    (ip) => unused.free(ip),
  );
  const hostPorts = openHostPorts({ ...options, bridge: POD_BRIDGE, netns: network.netns });
  /** Detachments in progress, by uid. */
  const leaving = new Map<string, Promise<void>>();
  /** By pod. */
  const extraSources = new Map<string, readonly Cidr[]>();
  const guarded = (uid: string, pod: string, ips: readonly string[]): GuardedPort => ({
    port: podPort(uid),
    pod,
    mac: podMac(uid),
    ips,
    extra: extraSources.get(pod) ?? [],
  });
  const present = new Set(listLinks(network.socket).map(({ name }) => name));
  const guard = openSourceGuard({
    ...options,
    gatewayMac: network.bridgeMac,
    isRequired: requiresGuard,
    netns: network.netns,
    ports: [...journal.records.values()]
      .filter(({ uid }) => present.has(podPort(uid)))
      .map(({ uid, pod, ips }) => guarded(uid, pod, ips)),
  });
  const unused = openUnusedAddresses({
    ...options,
    bridge: POD_BRIDGE,
    podCidrs: network.gateways.map(({ cidr }) => cidr),
    links: network.linkNetworks(),
    used: [...journal.records.values()].flatMap(({ ips }) => ips),
    netns: network.netns,
  });
  writeHostPorts();
  repairPorts(network, journal, leaving);

  function writeHostPorts(): void {
    const pods = [...journal.records.values()].filter((record) => (record.hostPorts ?? []).length > 0);
    hostPorts.write(pods.map(({ ips, hostPorts: ports = [] }) => ({ ips, hostPorts: ports })));
  }

  /** Removes a pod's device. It is down before its guard ends. */
  async function removePort(uid: string): Promise<void> {
    const name = podPort(uid);
    shutDown(network.socket, name);
    await guard?.release(name);
    await removal.remove(name);
  }

  function unplug(uid: string): Promise<void> {
    const started = leaving.get(uid);
    if (started) return started;
    const leave = async () => {
      for (const address of journal.records.get(uid)?.ips ?? []) {
        deleteNeighbour(network.socket, { device: network.bridge, address });
      }
      const ports = journal.records.get(uid)?.hostPorts ?? [];
      await removePort(uid);
      assigned.free(uid);
      if (ports.length === 0) return;
      writeHostPorts();
      await hostPorts.forgetFlows(ports);
    };
    const done = leave().finally(() => leaving.delete(uid));
    leaving.set(uid, done);
    return done;
  }

  return {
    async attach(pod, netns) {
      await leaving.get(pod.uid);
      checkHostPorts(journal, pod);
      const { ips, fresh } = assigned.take(pod);
      try {
        // It would inherit the connections that policies allowed to the former pod of an address. Not when that one leaves:
        // the proxy finds the connections that it has to reset by their flows.
        if (fresh) await flows.forget(ips);
        const port = podPort(pod.uid);
        if (findLink(network.socket, port) && !isPlugged(network, pod.uid, netns, pod.device)) {
          // Its sandbox was removed.
          await removePort(pod.uid);
        }
        const isNew = createPodLink(network, pod, netns);
        await guard?.protect(guarded(pod.uid, `${pod.namespace}/${pod.name}`, ips), isNew);
        for (const ip of ips) await unused.take(ip);
        setUpPodLink(network, pod, netns, ips);
        await untilPodLinkWorks(network, pod, netns, options.clock ?? systemClock);
        if (fresh && pod.hostPorts?.length) {
          writeHostPorts();
          await hostPorts.forgetFlows(pod.hostPorts);
        }
        return { ips };
      } catch (error) {
        if (fresh) await unplug(pod.uid);
        else await removePort(pod.uid);
        throw plugError(pod, error);
      }
    },
    detach: unplug,
    addresses(uid) {
      const record = journal.records.get(uid);
      return record ? [...record.ips] : null;
    },
    async collect(keep, among) {
      const known = [...journal.records.keys()];
      const isAmong = (uid: string) => (among === undefined ? !uid.includes('/') : uid.startsWith(among));
      const gone = known.filter((uid) => isAmong(uid) && !keep.has(uid));
      const ports = new Set([...keep, ...known].map(podPort));
      const strays = listLinks(network.socket)
        .filter((link) => link.kind === 'veth' && link.master === network.bridge)
        .map((link) => link.name)
        .filter((name) => isPodPort(name) && !ports.has(name));
      await Promise.all([...gone.map(unplug), ...strays.map((name) => removal.remove(name))]);
      return gone;
    },
    uids: () => [...journal.records.keys()],
    problem: (uid, netns, device) =>
      podLinkProblem(network, uid, netns, journal.records.get(uid)?.ips ?? [], device),
    repair: async () => [
      ...repairPorts(network, journal, leaving),
      ...((await guard?.check()) ?? []),
      ...(await unused.check()),
      ...(await hostPorts.check()),
    ],
    macOf(address) {
      for (const { uid, ips } of journal.records.values()) if (ips.includes(address)) return podMac(uid);
      return null;
    },
    usage: assigned.usage,
    ownerOf(address) {
      for (const { uid, pod, ips } of journal.records.values()) {
        const isOwn =
          ips.includes(address) || extraSources.get(pod)?.some((one) => cidrContains(one, address));
        if (isOwn) return { pod, mac: podMac(uid) };
      }
      return null;
    },
    async allowSources(pod, networks) {
      if (networks.length === 0) extraSources.delete(pod);
      else extraSources.set(pod, networks);
      for (const { uid, pod: key, ips } of journal.records.values()) {
        if (key !== pod || leaving.has(uid) || !findLink(network.socket, podPort(uid))) continue;
        await guard?.protect(guarded(uid, pod, ips), false);
      }
    },
    droppedSources() {
      if (!guard) return null;
      const { byPort, ...counts } = guard.counts();
      const byPod = new Map<string, number>();
      for (const { uid, pod } of journal.records.values()) {
        const count = byPort.get(podPort(uid)) ?? 0;
        if (count > 0) byPod.set(pod, (byPod.get(pod) ?? 0) + count);
      }
      return { ...counts, byPod };
    },
    close() {
      journal.close();
      removal.close();
      flows.close();
      guard?.close();
      unused.close();
      hostPorts.close();
    },
  };
}

/**
 * Removes the devices of all pods of a node, and the record of their addresses: the pods have no network until they are
 * recreated.
 */
export async function removePods(stateDir: string, netns?: NetnsRef): Promise<void> {
  const removal = openPortRemoval(netns);
  try {
    using socket = openRouteSocket(netns);
    const ports = listLinks(socket).filter(({ name, kind }) => kind === 'veth' && isPodPort(name));
    await Promise.all(ports.map(({ name }) => removal.remove(name)));
  } finally {
    removal.close();
  }
  rmSync(join(stateDir, JOURNAL_FILE), { force: true });
}

function plugError(pod: NetworkPod, error: unknown): unknown {
  if (!(error instanceof FairleadError) || hasCode(error, 'addresses-exhausted', 'NodePorts')) return error;
  return new FairleadError(
    `failed to attach pod ${pod.namespace}/${pod.name} to the network: ${error.message}`,
    {
      op: 'attach pod',
      code: error.code,
      object: `${pod.namespace}/${pod.name}`,
      cause: error,
    },
  );
}

/** Returns descriptions of the repaired differences. `leaving`: pods that are being detached. */
function repairPorts(
  network: NodeNetwork,
  journal: AddressJournal,
  leaving: ReadonlyMap<string, unknown>,
): string[] {
  const { socket, bridge } = network;
  const links = new Map(listLinks(socket).map((link) => [link.name, link]));
  const macs = new Map(
    listNeighbours(socket, { device: bridge })
      .filter(({ permanent }) => permanent)
      .map(({ address, mac }) => [address, mac]),
  );
  const ports = listBridgePorts(socket);
  const repaired: string[] = [];
  for (const { uid, ips } of journal.records.values()) {
    const port = links.get(podPort(uid));
    if (!port || leaving.has(uid)) continue;
    const mac = podMac(uid);
    const wrong = [
      ...(port.master === bridge ? [] : [`${port.name} was not on the bridge`]),
      ...(port.up ? [] : [`${port.name} was down`]),
      ...(hasPortSettings(ports.get(port.index)) ? [] : [`${port.name} had other settings`]),
      ...ips.filter((ip) => macs.get(ip) !== mac).map((ip) => `neighbour ${ip}`),
      ...(listForwardingEntries(socket, port.index).some((entry) => entry.mac === mac)
        ? []
        : [`forwarding entry ${mac} of ${port.name}`]),
    ];
    if (wrong.length === 0) continue;
    setUpPort(network, port, mac, ips);
    repaired.push(...wrong);
  }
  return repaired;
}

/** Throws FairleadError if another pod has a host port that a pod wants. */
function checkHostPorts(journal: AddressJournal, pod: NetworkPod): void {
  for (const record of journal.records.values()) {
    if (record.uid === pod.uid) continue;
    for (const taken of record.hostPorts ?? []) {
      const clash = pod.hostPorts?.find((port) => portsClash(port, taken));
      if (clash) {
        throw new FairleadError(
          `host port ${clash.hostPort}/${clash.protocol} is already in use by pod ${record.pod}`,
          { op: 'attach pod', code: 'NodePorts', object: `${pod.namespace}/${pod.name}` },
        );
      }
    }
  }
}

import { changeAddresses, ensureInterface, removeInterface } from '../dataplane/ipvs/service-interface.ts';
import { ConntrackConnection } from '../kernel/conntrack/connection.ts';
import { FLOW_STATUS } from '../kernel/conntrack/flow.ts';
import { openIpsets } from '../kernel/ipset.ts';
import type { ServerId } from '../kernel/ipvs/codec.ts';
import { IpvsConnection } from '../kernel/ipvs/connection.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import { deleteAddress, listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { deleteLink, findLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { type Cidr, cidrContains, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

/** A proxy that translates Services by virtual servers of IPVS, with the names of its objects. */
export interface IpvsProxy {
  readonly name: string;
  /** The device with the Services' addresses. */
  readonly device: string;
  /** Names of its ipsets. */
  readonly sets: RegExp;
  /** Those that list its servers at addresses of other devices (node ports), with the protocol that a name stands for. */
  readonly nodePortSets: readonly (readonly [name: string, family: IPFamily, protocol: number | null])[];
}

const { TCP, UDP, SCTP } = PROTOCOL_NUMBER;
const KUBE_PROXY_SETS = [
  ...['LOOP-BACK', 'CLUSTER-IP', 'EXTERNAL-IP', 'EXTERNAL-IP-LOCAL', 'LOAD-BALANCER', 'LOAD-BALANCER-LOCAL'],
  ...['LOAD-BALANCER-FW', 'LOAD-BALANCER-SOURCE-IP', 'LOAD-BALANCER-SOURCE-CIDR?', 'NODE-PORT-TCP'],
  ...['NODE-PORT-LOCAL-TCP', 'NODE-PORT-UDP', 'NODE-PORT-LOCAL-UDP', 'NODE-PORT-SCTP-HASH'],
  // A name has at most 31 characters: kube-proxy cuts off the last one of two names for IPv6.
  ...['NODE-PORT-LOCAL-SCTP-HASH?', 'HEALTH-CHECK-NODE-PORT', 'IPVS-IPS'],
];

/** kube-proxy in IPVS mode. */
export const KUBE_PROXY_IPVS: IpvsProxy = {
  name: 'kube-proxy',
  device: 'kube-ipvs0',
  sets: new RegExp(`^KUBE-(6-)?(${KUBE_PROXY_SETS.join('|')})$`),
  nodePortSets: [
    ['KUBE-NODE-PORT-TCP', 'ipv4', TCP],
    ['KUBE-NODE-PORT-UDP', 'ipv4', UDP],
    ['KUBE-NODE-PORT-SCTP-HASH', 'ipv4', SCTP],
    ['KUBE-6-NODE-PORT-TCP', 'ipv6', TCP],
    ['KUBE-6-NODE-PORT-UDP', 'ipv6', UDP],
    ['KUBE-6-NODE-PORT-SCTP-HASH', 'ipv6', SCTP],
  ],
};

/** The state of such a proxy. */
export interface ForeignServers {
  readonly proxy: IpvsProxy;
  /** Index of its device; null: it does not exist. */
  readonly device: number | null;
  /** Addresses of its device that may be taken over. */
  readonly addresses: readonly string[];
  /** Addresses of its device that are excluded, and have virtual servers. */
  readonly kept: readonly string[];
  /** Its servers at other addresses of the node. */
  readonly nodePorts: readonly AddressServer[];
  readonly sets: readonly string[];
}

type AddressServer = Extract<ServerId, { readonly address: string }>;

const LINK_LOCAL = /^fe80:/i;
const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const POLL_MS = 2000;
const DRAIN_MS = 3_600_000;

/**
 * Finds the state of a proxy that uses IPVS; null: there is none. `excluded`: networks whose virtual servers belong to
 * other programs (kube-proxy's ipvs.excludeCIDRs).
 */
export function findForeignServers(proxy: IpvsProxy, excluded: readonly Cidr[]): ForeignServers | null {
  const isExcluded = (address: string) => excluded.some((cidr) => cidrContains(cidr, address));
  const sets = listSets().filter((name) => proxy.sets.test(name));
  using socket = openRouteSocket();
  const device = findLink(socket, proxy.device)?.index ?? null;
  if (device === null && sets.length === 0) return null;
  const local = listAddresses(socket);
  const bound = local.filter((one) => one.device === device && !LINK_LOCAL.test(one.address));
  const others = new Set(local.filter((one) => one.device !== device).map(({ address }) => address));
  const servers = listServers();
  const served = new Set(servers.map(({ address }) => address));
  const kept = bound.map(({ address }) => address).filter((one) => isExcluded(one) && served.has(one));
  const addresses = bound.map(({ address }) => address).filter((one) => !kept.includes(one));
  // A device with excluded addresses alone belongs to other programs.
  if (sets.length === 0 && kept.length > 0 && addresses.length === 0) return null;
  const nodePorts = nodePortServers(proxy, servers).filter(
    ({ address }) => others.has(address) && !isExcluded(address),
  );
  return { proxy, device, addresses, kept, nodePorts, sets };
}

/**
 * Moves the addresses of a proxy's device to the device of our IPVS mode, and removes the proxy's: the virtual servers of
 * these addresses are ours from then on, with their open connections. At no time is an address missing on the node.
 */
export async function adoptAddresses({ device, addresses, kept, proxy }: ForeignServers): Promise<void> {
  if (device === null) return;
  if (addresses.length > 0) await changeAddresses(ensureInterface(), addresses, []);
  using socket = openRouteSocket();
  if (kept.length === 0) deleteLink(socket, proxy.device);
  else {
    for (const address of addresses)
      deleteAddress(socket, { device, address, prefix: address.includes(':') ? 128 : 32 });
  }
}

/**
 * Removes the proxy's servers, while another mode of ours handles new connections. Open TCP and SCTP connections continue
 * on their servers until they end, for an hour at most.
 */
export async function drainAdopted(logger: Logger): Promise<void> {
  const [{ createIpvs }, { endDraining }] = await Promise.all([
    import('../dataplane/ipvs/ipvs.ts'),
    import('../dataplane/ipvs/drain.ts'),
  ]);
  try {
    // A request that is under way continues with the addresses of both.
    await endDraining(FAMILIES, undefined);
    const ipvs = createIpvs({ families: FAMILIES, logger });
    try {
      await ipvs.remove({ succeeded: true });
    } finally {
      await ipvs.close();
    }
  } catch (error) {
    if (!hasCode(error, 'no-ipvs')) throw error;
    // Without IPVS there are no servers, only the device.
    removeInterface();
  }
}

/**
 * Removes the proxy's ipsets, and its servers at addresses of the node. Servers with open connections accept no new ones
 * until these have ended; the ipsets that list such servers stay as long, so that an agent that starts meanwhile continues.
 */
export async function drainNodePorts(found: ForeignServers, clock: Clock, logger: Logger): Promise<void> {
  const until = clock.now() + DRAIN_MS;
  const listing = new Set(found.proxy.nodePortSets.map(([name]) => name));
  const others = found.sets.filter((name) => !listing.has(name));
  const last = found.sets.filter((name) => listing.has(name));
  destroySets(others, logger);
  const finish = async (): Promise<boolean> => {
    try {
      return (await endIdle(found.nodePorts, clock.now() >= until)) && destroySets(last, logger);
    } catch (error) {
      logger.warn(
        { error: messageOf(error) },
        `failed to remove servers of ${found.proxy.name}; trying again`,
      );
      return false;
    }
  };
  if (await finish()) return;
  const timer = setInterval(() => {
    void finish().then((done) => {
      if (done) clearInterval(timer);
    });
  }, POLL_MS);
  timer.unref();
}

/** Removes servers without open connections, and prevents new ones to the others. Returns true if none is left. */
async function endIdle(ids: readonly AddressServer[], all: boolean): Promise<boolean> {
  if (ids.length === 0) return true;
  using ipvs = new IpvsConnection();
  const batch = ipvs.batch();
  let left = 0;
  for (const id of ids) {
    if (!ipvs.hasServer(id)) continue;
    const reals = ipvs.realServers(id);
    const isOpen = id.protocol !== UDP && !all && reals.some((real) => real.activeConnections > 0);
    if (isOpen) {
      left++;
      for (const { address, port, weight } of reals)
        if (weight > 0) batch.changeRealServer(id, { address, port, weight: 0 });
    } else batch.deleteServer(id);
  }
  await ipvs.commit(batch);
  await forgetUdp(ids.filter(({ protocol }) => protocol === UDP));
  return left === 0;
}

/** Deletes the flows of UDP servers: their next datagrams pass our rules. */
async function forgetUdp(ids: readonly AddressServer[]): Promise<void> {
  if (ids.length === 0) return;
  const served = new Set(ids.map(({ address, port }) => `${address} ${port}`));
  using conntrack = new ConntrackConnection();
  for (const family of FAMILIES) {
    const flows = conntrack.list(family, { protocol: UDP });
    await conntrack.delete(
      flows.filter(
        // IPVS sets no status bit for the flows that it translates.
        ({ original, status }) =>
          (status & FLOW_STATUS.destinationNat) === 0 &&
          served.has(`${original.destination} ${original.destinationPort}`),
      ),
    );
  }
}

function nodePortServers({ nodePortSets }: IpvsProxy, servers: readonly AddressServer[]): AddressServer[] {
  if (servers.length === 0) return [];
  using sets = openIpsets(undefined);
  const listed = new Set(
    nodePortSets.flatMap(([name, family, protocol]) =>
      sets
        .members(name)
        .map((one) => `${family} ${one.protocol ?? protocol} ${one.address ?? '*'} ${one.port}`),
    ),
  );
  return servers.filter(({ family, protocol, address, port }) =>
    [address, '*'].some((where) => listed.has(`${family} ${protocol} ${where} ${port}`)),
  );
}

function listServers(): AddressServer[] {
  try {
    using ipvs = new IpvsConnection();
    return ipvs.servers().flatMap(({ id }) => ('address' in id ? [id] : []));
  } catch (error) {
    if (hasCode(error, 'no-ipvs')) return [];
    throw error;
  }
}

function listSets(): string[] {
  try {
    using sets = openIpsets(undefined);
    return sets.list();
  } catch (error) {
    // A kernel without ipset.
    if (hasCode(error, 'EINVAL', 'ENOENT', 'EOPNOTSUPP')) return [];
    throw error;
  }
}

/** Returns true: a set that foreign rules use stays, and is named. */
function destroySets(names: readonly string[], logger: Logger): true {
  if (names.length === 0) return true;
  using sets = openIpsets(undefined);
  const used = sets.destroy(names);
  if (used.size > 0) logger.warn({ sets: [...used.keys()] }, 'ipsets of another proxy stay: rules use them');
  return true;
}

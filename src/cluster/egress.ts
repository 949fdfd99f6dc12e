import { readFileSync, rmSync } from 'node:fs';
import { upstreamsFromResolvConf } from '../dns/resolv-conf.ts';
import { identify, isRunning, type ProcessIdentity } from '../kernel/process-identity.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { getLink, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { addRoute, deleteRoute, listRoutes, type Route } from '../kernel/rtnetlink/routes.ts';
import { readSysctl, writeSysctl } from '../kernel/sysctl.ts';
import { FAMILY_NAMES, type IPFamily, parseCidr } from '../lib/address.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { describeError, FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { machineDevice, nodeNetns, UPLINK } from '../network/topology.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { egressTable, FAMILIES, renderEgressRules } from './egress-rules.ts';
import { createNameServerRelays } from './name-server-relay.ts';
import { isRootless } from './rootless/rootless.ts';
import { WAY_OUT_NAME_SERVER, wayOutMachineAddresses } from './rootless/way-out.ts';
import { type ClusterState, clusterPaths, listClusters, readCluster } from './state.ts';

const POLL_MS = 1000;
const RESOLV_CONF = '/etc/resolv.conf';
const DEFAULT_ROUTE: Readonly<Record<IPFamily, string>> = { ipv4: '0.0.0.0/0', ipv6: '::/0' };

/** The way out of one family. */
export interface EgressReport {
  readonly family: IPFamily;
  /** The machine's devices with a default route. */
  readonly uplinks: readonly string[];
  /** Why pods do not reach external networks; null: they do. */
  readonly problem: string | null;
}

/** The contents of egress.json, which the process that serves the egress writes. */
interface EgressFile {
  readonly writer: ProcessIdentity | null;
  /** Kernel settings do not survive a reboot. */
  readonly bootId: string;
  /** Devices on which IPv4 forwarding was off before any cluster of this machine turned it on. */
  readonly closedUplinks: readonly string[];
  readonly families: readonly EgressReport[];
  /** Why pods cannot resolve external names; null: they can, as far as this machine knows. */
  readonly nameProblem: string | null;
}

const NO_FILE: EgressFile = {
  writer: null,
  bootId: '',
  closedUplinks: [],
  families: [],
  nameProblem: null,
};

/**
 * Keeps the route of a cluster's pods to external networks through this machine, until the signal aborts or the cluster is
 * removed: rules and forwarding of the machine, and a default route on each node. Follows the machine's default routes,
 * and reverts changes by other programs.
 */
export async function serveEgress(
  name: string,
  { clock, logger, signal }: { readonly clock: Clock; readonly logger: Logger; readonly signal: AbortSignal },
): Promise<void> {
  const tables = keepTables({ families: FAMILIES, name: egressTable(name), clock, logger });
  const instead = isRootless() ? WAY_OUT_NAME_SERVER : null;
  const relays = createNameServerRelays({ cluster: name, clock, logger, instead });
  let problems = '';
  try {
    while (!signal.aborted) {
      const state = readCluster(name);
      if (!state?.egress) break;
      const servers = findNameServers();
      const families = state.wireCidrs.map((_, i) => openFamily(state, i, tables, servers.onMachine));
      const nameProblems = relays.update(
        state.nodes.map((node) => node.name),
        servers.onLoopback,
      );
      const nameProblem = nameProblems[0] ?? servers.problem;
      writeFile(name, { ...readFile(name), families, nameProblem }, logger);
      const current = [...families.map(({ problem }) => problem), nameProblem]
        .filter((one) => one !== null)
        .join('; ');
      if (current !== problems) logger.info({ families }, current || 'pods reach external networks');
      problems = current;
      await pause(clock, POLL_MS, signal);
    }
  } finally {
    relays.close();
    tables.close();
  }
}

/** Returns the addresses of the machine if it is behind an uplink, as for the namespaces of an ordinary user. */
const machineBehind = (): readonly string[] => (isRootless() ? wayOutMachineAddresses() : []);

interface NameServers {
  /** On loopback addresses. */
  readonly onLoopback: readonly string[];
  /** On other addresses of this machine. */
  readonly onMachine: readonly string[];
  readonly problem: string | null;
}

/** Finds the name servers of resolv.conf that run on this machine. The DNS servers of the nodes read the same file. */
function findNameServers(): NameServers {
  try {
    const addresses = upstreamsFromResolvConf(readResolvConf());
    using socket = openRouteSocket();
    const own = new Set([
      ...FAMILIES.flatMap((family) => listAddresses(socket, { family })).map((one) => one.address),
      ...machineBehind(),
    ]);
    const onLoopback = addresses.filter(isLoopback);
    const onMachine = addresses.filter((address) => !isLoopback(address) && own.has(address));
    const problem =
      addresses.length === 0 ? `${RESOLV_CONF} names no name server; add a line: nameserver ADDRESS` : null;
    return { onLoopback, onMachine, problem };
  } catch (error) {
    return { onLoopback: [], onMachine: [], problem: messageOf(error) };
  }
}

function readResolvConf(): string {
  try {
    return readFileSync(RESOLV_CONF, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

const isLoopback = (address: string): boolean => address === '::1' || address.startsWith('127.');

/** Opens the egress of one family of the wire; returns what it found. Errors are problems of the report. */
function openFamily(
  state: ClusterState,
  index: number,
  tables: KeptTables,
  nameServers: readonly string[],
): EgressReport {
  const wire = parseCidr(state.wireCidrs[index] ?? '');
  const via = state.machineAddresses[index];
  const family = wire?.family ?? 'ipv4';
  let uplinks: string[] = [];
  try {
    if (!wire || via === undefined) {
      const hint = 'restart the cluster: fairlead stop, fairlead up';
      throw new FairleadError('this machine is not on the wire', { op: 'open egress', code: 'ENODEV', hint });
    }
    uplinks = uplinksOf(family, state.name);
    const problem = uplinks.length === 0 ? noDefaultRoute(family) : closedBy(family);
    if (problem !== null) {
      tables.write(family, null);
      for (const node of state.nodes) setDefaultRoute(state.name, node.name, family, null);
      return { family, uplinks, problem };
    }
    const device = machineDevice(state.name);
    const closedUplinks = family === 'ipv4' ? recordClosedUplinks(state.name, uplinks) : [];
    // The rules first: forwarding must not open any other way.
    tables.write(
      family,
      renderEgressRules({
        cluster: state.name,
        device,
        wire,
        hasHostAccess: state.hostAccess !== 'none',
        nameServers: nameServers.filter(isOf(family)),
        closedUplinks,
        closedDestinations: machineBehind().filter(isOf(family)),
      }),
    );
    if (family === 'ipv4') for (const one of [device, ...uplinks]) writeSysctl(forwardingOf(one), 1);
    for (const node of state.nodes) setDefaultRoute(state.name, node.name, family, via);
    return { family, uplinks, problem: null };
  } catch (error) {
    return { family, uplinks, problem: describeError(error) };
  }
}

const isOf = (family: IPFamily) => (address: string) => address.includes(':') === (family === 'ipv6');

/** Returns the devices of the machine's default routes, without those of local clusters. */
function uplinksOf(family: IPFamily, cluster: string): string[] {
  using socket = openRouteSocket();
  const names = new Map(listLinks(socket).map(({ index, name }) => [index, name]));
  const own = machineDevice(cluster);
  const devices = listRoutes(socket, { family })
    .filter(({ destination, type }) => destination === DEFAULT_ROUTE[family] && type === 'unicast')
    .flatMap(({ device }) => names.get(device ?? 0) ?? [])
    .filter((name) => name !== own);
  return [...new Set(devices)].sort();
}

/**
 * IPv4 is forwarded by device. For IPv6 the kernel has one switch for the whole machine, which also removes the
 * default routes that the machine learned from router advertisements (addrconf_fixup_forwarding): it is left to the
 * administrator.
 */
function closedBy(family: IPFamily): string | null {
  if (family === 'ipv4' || readSysctl('net.ipv6.conf.all.forwarding') === '1') return null;
  return 'this machine does not forward IPv6: set net.ipv6.conf.all.forwarding=1, and accept_ra=2 for devices with router advertisements';
}

function noDefaultRoute(family: IPFamily): string {
  if (isRootless())
    return family === 'ipv6'
      ? 'without root, only IPv4 reaches external networks'
      : 'the program that carries the packets has ended; start it again: fairlead up';
  return `this machine has no ${FAMILY_NAMES[family]} default route; add one: ip ${family === 'ipv6' ? '-6 ' : ''}route add default via GATEWAY`;
}

const forwardingOf = (device: string) => `net/ipv4/conf/${device}/forwarding`;

/**
 * Returns the uplinks on which IPv4 forwarding is off, or was off before a cluster turned it on; records them before
 * they are changed.
 */
function recordClosedUplinks(cluster: string, uplinks: readonly string[]): readonly string[] {
  const files = listClusters().map(readFile);
  const closed = new Set(files.flatMap((file) => file.closedUplinks));
  for (const uplink of uplinks) if (readSysctl(forwardingOf(uplink)) === '0') closed.add(uplink);
  const own = readFile(cluster);
  const closedUplinks = [...closed].sort();
  if (closedUplinks.join() !== own.closedUplinks.join())
    replaceEgressFile(cluster, { ...own, closedUplinks });
  return closedUplinks;
}

/** Sets a node's default route through the machine; null: removes it. */
function setDefaultRoute(cluster: string, node: string, family: IPFamily, via: string | null): void {
  using socket = openRouteSocket(nodeNetns(cluster, node));
  const device = getLink(socket, UPLINK).index;
  const destination = DEFAULT_ROUTE[family];
  const present = listRoutes(socket, { family, device }).filter((route) => route.destination === destination);
  const isWanted = (route: Route) => via !== null && route.via === via;
  for (const route of present) if (!isWanted(route)) deleteRoute(socket, route);
  if (via !== null && !present.some(isWanted)) addRoute(socket, { destination, via, device });
}

/** Returns the report of each family; null: their process has not reported, or is not running. */
export function readEgressReports(name: string): readonly EgressReport[] | null {
  const { writer, families } = readFile(name);
  return isRunning(writer) && families.length > 0 ? families : null;
}

/** Returns why pods of a cluster with egress cannot resolve external names, as far as its process knows. */
export const readNameProblem = (name: string): string | null => readFile(name).nameProblem ?? null;

/** Removes the rules of a cluster from the machine, and forwarding that no other cluster uses. Idempotent. */
export function removeEgress(cluster: string): void {
  const tables = keepTables({ families: FAMILIES, name: egressTable(cluster) });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
  const { closedUplinks } = readFile(cluster);
  const others = listClusters().filter((other) => other !== cluster && isRunning(readFile(other).writer));
  const used = new Set(others.flatMap((other) => readFile(other).closedUplinks));
  for (const uplink of closedUplinks) if (!used.has(uplink)) writeSysctl(forwardingOf(uplink), 0);
  rmSync(clusterPaths(cluster).egress, { force: true });
}

const bootId = () => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();

function readFile(cluster: string): EgressFile {
  try {
    const file = JSON.parse(readFileSync(clusterPaths(cluster).egress, 'utf8')) as EgressFile;
    return file.bootId === bootId() ? file : NO_FILE;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return NO_FILE;
    throw error;
  }
}

function replaceEgressFile(cluster: string, file: EgressFile): void {
  const own = { ...file, writer: identify(process.pid), bootId: bootId() };
  replaceFile(clusterPaths(cluster).egress, `${JSON.stringify(own, null, 2)}\n`);
}

function writeFile(cluster: string, file: EgressFile, logger: Logger): void {
  try {
    replaceEgressFile(cluster, file);
  } catch (error) {
    // For example on a full disk; the egress itself is open.
    logger.warn({}, `failed to write the report: ${messageOf(error)}`);
  }
}

import { join } from 'node:path';
import type { Mode } from '../dataplane/dataplane.ts';
import { pinPathOf } from '../dataplane/ebpf/pins.ts';
import { controlGroupRoot } from '../kernel/control-group.ts';
import { listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import type { Cidr } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type BpfLeftovers, type BpfPlace, type BpfProxy, findBpf, removeBpf } from './bpf-leftovers.ts';
import { type FoundChains, findChains, removeChains, removeRules } from './foreign-chains.ts';
import {
  adoptAddresses,
  drainAdopted,
  drainNodePorts,
  type ForeignServers,
  findForeignServers,
  type IpvsProxy,
} from './foreign-servers.ts';
import { type Evidence, findProcess } from './running-kube-proxy.ts';
import { askStatus } from './status-answer.ts';

/** A product other than kube-proxy that translates Services, and by what it is recognized. */
interface OtherProxy {
  readonly name: string;
  /** Recognizes its process by the words of the command line; the first one is the program's name. */
  isProcess(words: readonly string[]): boolean;
  /** Its health port on loopback. */
  readonly health: readonly [port: number, path: string];
  readonly bpf: BpfProxy | null;
  readonly ipvs: IpvsProxy | null;
  /** Chains that serve only the translation of Services, by table. */
  readonly chains: Readonly<Record<string, RegExp>>;
  /** Rules of that kind in the built-in chains of the table nat. */
  readonly natRules: RegExp | null;
  /** Devices of its pod network. */
  readonly devices: RegExp;
  /** How its documentation removes the rest. */
  readonly cleanUp: string;
}

const NO_CHAINS = {};

const KUBE_ROUTER_IPVS: IpvsProxy = {
  name: 'kube-router',
  device: 'kube-dummy-if',
  sets: /^(inet6:)?kube-router-(svip|svip-prt|local-ips)-?$/,
  nodePortSets: [
    ['kube-router-svip-prt', 'ipv4', null],
    ['inet6:kube-router-svip-prt', 'ipv6', null],
  ],
};

const PROXIES: readonly OtherProxy[] = [
  {
    name: 'Cilium',
    isProcess: ([program]) => program === 'cilium-agent',
    health: [9879, '/healthz'],
    bpf: {
      programs: /^cil_sock/,
      links: 'cilium/socketlb/links/cgroup',
      maps: /^cilium_lb[46]_services(_v[0-9]+)?$/,
    },
    ipvs: null,
    chains: NO_CHAINS,
    natRules: null,
    devices: /^(cilium_|lxc)/,
    cleanUp: 'cilium-dbg post-uninstall-cleanup --all-state',
  },
  {
    name: 'kube-router',
    isProcess: ([program]) => program === 'kube-router',
    health: [20244, '/healthz'],
    bpf: null,
    ipvs: KUBE_ROUTER_IPVS,
    chains: { filter: /^KUBE-ROUTER-SERVICES$/, nat: /^KUBE-ROUTER-HAIRPIN$/ },
    natRules: /-m ipvs .*--vdir ORIGINAL.* --vmethod MASQ/,
    devices: /^(kube-bridge|tun-)/,
    cleanUp: 'kube-router --cleanup-config',
  },
  {
    name: 'Calico (eBPF)',
    isProcess: ([program, ...words]) => program === 'calico-node' && words.includes('-felix'),
    health: [9099, '/liveness'],
    bpf: {
      programs: /^(cali_ctlb|calico_(connec|sendms|recvms))/,
      links: null,
      maps: /^cali_v[46]_nat_fe[0-9]*$/,
    },
    ipvs: null,
    chains: NO_CHAINS,
    natRules: null,
    devices: /^(cali|bpf(in|out)\.cali)/,
    cleanUp: 'set bpfEnabled: false in the FelixConfiguration "default", and start calico-node once',
  },
];

/** The state of another product on this node. */
export interface OtherProxyState {
  readonly proxy: OtherProxy;
  /** Evidence that it runs; null: it does not. */
  readonly running: Evidence | null;
  readonly bpf: BpfLeftovers;
  readonly ipvs: ForeignServers | null;
  readonly chains: readonly FoundChains[];
  /** Devices of its pod network. */
  readonly devices: readonly string[];
}

/** Returns where the BPF objects of this node are. `cgroupParent` null: the whole machine is the node. */
export function bpfPlace(cgroupParent: string | null): BpfPlace {
  const root = controlGroupRoot();
  return cgroupParent === null
    ? { group: root, pins: '/sys/fs/bpf' }
    : { group: root === null ? null : join(root, cgroupParent), pins: pinPathOf(cgroupParent) };
}

/** Finds the products that translate Services on this node, or have left their state. */
export async function findOtherProxies(
  place: BpfPlace,
  excluded: readonly Cidr[],
): Promise<OtherProxyState[]> {
  using socket = openRouteSocket();
  const links = listLinks(socket).map(({ name }) => name);
  const found: OtherProxyState[] = [];
  for (const proxy of PROXIES) {
    const bpf = proxy.bpf === null ? { programs: [], maps: [] } : findBpf(proxy.bpf, place);
    const ipvs = proxy.ipvs === null ? null : findForeignServers(proxy.ipvs, excluded);
    // They match its ipsets: without these there are none, and large tables need not be read.
    const chains = ipvs === null ? [] : await findChains(proxy.chains);
    const devices = links.filter((name) => proxy.devices.test(name));
    const state = { proxy, running: null, bpf, ipvs, chains, devices };
    // Of Calico, whose devices exist in all its modes, only the eBPF mode translates Services.
    if (!isTranslating(state) && (proxy.bpf === null || devices.length === 0)) continue;
    found.push({ ...state, running: await findRunning(proxy) });
  }
  return found;
}

/** Works like `findOtherProxies`; if that fails, logs it, since the agent can work all the same. */
export async function detectOtherProxies(
  place: BpfPlace,
  excluded: readonly Cidr[],
  logger: Logger,
): Promise<OtherProxyState[]> {
  try {
    return await findOtherProxies(place, excluded);
  } catch (error) {
    logger.error({ err: error }, `failed to look for other proxies: ${messageOf(error)}`);
    return [];
  }
}

/** Returns true if the product's state translates Services. */
export const isTranslating = ({ bpf, ipvs }: Pick<OtherProxyState, 'bpf' | 'ipvs'>): boolean =>
  bpf.programs.length > 0 || bpf.maps.length > 0 || ipvs !== null;

/**
 * Returns true if a running product handles the node's Services, as kube-proxy does. Cilium as a CNI plugin beside another
 * proxy has no programs at sockets, and translates only what pods send through its devices.
 */
export const isLiveProxy = (state: OtherProxyState): boolean =>
  state.running !== null &&
  (state.proxy.name === 'Cilium' ? state.bpf.programs.length > 0 : isTranslating(state));

/** Describes the state that translates Services, for messages. */
export function describeState({ bpf, ipvs, chains }: OtherProxyState): string {
  return [
    ...(bpf.programs.length > 0 ? [`${bpf.programs.length} programs at sockets`] : []),
    ...(bpf.maps.length > 0
      ? [`entries of ${bpf.maps.map((path) => path.replace(/.*\//, '')).join(', ')}`]
      : []),
    ...(ipvs ? [`virtual servers of ${ipvs.proxy.device}`] : []),
    ...(chains.length > 0
      ? [`chains ${[...new Set(chains.flatMap((one) => [...one.chains]))].join(', ')}`]
      : []),
  ].join('; ');
}

/** Takes the virtual servers of stopped products over, before our IPVS mode programs its own. */
export async function adoptOtherServers(found: readonly OtherProxyState[]): Promise<void> {
  for (const { ipvs, running } of found) if (ipvs && running === null) await adoptAddresses(ipvs);
}

/**
 * Removes the state by which stopped products would still translate packets, after this agent has programmed its own rules. Resolves to a line
 * for each. Names in one warning what stays, because it may carry pods' traffic. Failures are only logged.
 */
export async function takeOverFromOthers(
  { mode, place, excluded }: { mode: Mode; place: BpfPlace; excluded: readonly Cidr[] },
  clock: Clock,
  logger: Logger,
): Promise<string[]> {
  const removed: string[] = [];
  const rest: string[] = [];
  for (const state of await detectOtherProxies(place, excluded, logger)) {
    if (state.running !== null) continue;
    try {
      if (isTranslating(state)) {
        await remove(state, mode, place, clock, logger);
        removed.push(`${state.proxy.name}: ${describeState(state)}`);
      }
    } catch (error) {
      logger.error({ err: error }, `failed to remove the state of ${state.proxy.name}: ${messageOf(error)}`);
    }
    rest.push(...remainderOf(state));
  }
  if (removed.length > 0)
    logger.info({ removed }, 'removed the state by which stopped proxies would still translate packets');
  if (rest.length > 0) logger.warn({ rest }, 'the pod network of a stopped product stays on this node');
  return removed;
}

/** Names what stays of a stopped product, with the clean-up of its documentation. */
export function remainderOf({ proxy, devices, bpf }: OtherProxyState): string[] {
  if (devices.length === 0) return [];
  // With the devices of Calico alone nothing is left over: it runs without its eBPF mode.
  if (proxy.name !== 'Cilium' && proxy.bpf !== null && bpf.programs.length + bpf.maps.length === 0) return [];
  const shown = devices.slice(0, 5).join(', ') + (devices.length > 5 ? ', …' : '');
  return [`${proxy.name}: devices ${shown}, their programs, routes and chains; if unused: ${proxy.cleanUp}`];
}

async function remove(
  { proxy, bpf, ipvs, chains }: OtherProxyState,
  mode: Mode,
  place: BpfPlace,
  clock: Clock,
  logger: Logger,
): Promise<void> {
  if (proxy.bpf !== null) removeBpf(proxy.bpf, bpf, place);
  await removeChains(chains);
  if (ipvs === null) return;
  if (proxy.natRules !== null) await removeRules('nat', proxy.natRules);
  if (ipvs.device !== null && mode !== 'ipvs') {
    await adoptAddresses(ipvs);
    await drainAdopted(logger);
  }
  await drainNodePorts(ipvs, clock, logger);
}

async function findRunning({ isProcess, health }: OtherProxy): Promise<Evidence | null> {
  const pid = findProcess(isProcess);
  if (pid !== null) return `process ${pid}`;
  const answer = await askStatus(...health);
  return answer !== null && !answer.isAgents ? `it answers on port ${health[0]}` : null;
}

import { join } from 'node:path';
import { readOptionalFile, readOptionalFolder } from '../kernel/optional-file.ts';
import { type Link, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes, type Route } from '../kernel/rtnetlink/routes.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Finding } from './preflight-finding.ts';

/** The limits of the size of packets between the pods of different nodes. */
export interface MtuFacts {
  readonly links: readonly Pick<Link, 'index' | 'name' | 'kind' | 'mtu' | 'up' | 'vxlan'>[];
  /** Default routes of the main table. */
  readonly routes: readonly Pick<Route, 'destination' | 'device' | 'metric' | 'mtu'>[];
  /** The MTUs that network plugins are configured to give to pods. */
  readonly configured: readonly { readonly file: string; readonly mtu: number }[];
}

/** Bytes that a tunnel adds to each packet, by the kind of its device and the family between the nodes. */
const OVERHEAD: Readonly<Record<string, Readonly<Record<IPFamily, number>>>> = {
  vxlan: { ipv4: 50, ipv6: 70 },
  geneve: { ipv4: 50, ipv6: 70 },
  ipip: { ipv4: 20, ipv6: 20 },
  wireguard: { ipv4: 60, ipv6: 80 },
};
/** Other WireGuard devices are the administrator's own. */
const PLUGIN_WIREGUARD = /^(flannel-wg|wireguard\.cali|wg-v6\.cali|kilo)/;
/** Cilium limits the size of packets by routes in the pods, not by the MTU of its devices. */
const CILIUM_DEVICE = /^(cilium_|lxc)/;
const IPV6_MINIMUM = 1280;
const MAX_NAMES = 3;

/** Where packets leave towards other nodes. */
interface Path {
  readonly family: IPFamily;
  readonly name: string;
  readonly mtu: number;
}

/** Checks that the packets of pods fit into the tunnels and devices between nodes. */
export function checkMtu({ links, routes, configured }: MtuFacts): Finding[] {
  const path = uplinkOf(links, routes);
  if (path === null)
    return [{ level: 'note', what: 'the MTU is not checked: the node has no default route', fix: null }];
  const tunnels = links.filter(isTunnelOfPods);
  const tooLarge = tunnels.flatMap((tunnel): Finding[] => {
    const { room, overhead } = roomIn(tunnel, path, links);
    if (tunnel.mtu <= room) return [];
    return [
      {
        level: 'note',
        what: `the tunnel ${tunnel.name} has the MTU ${tunnel.mtu}, but only ${room} bytes fit through ${path.name} (${room + overhead}, less ${overhead} of ${tunnel.kind}): larger packets are split or lost`,
        fix: `set the MTU in the configuration of the network plugin to ${room}, or that of ${path.name} to ${tunnel.mtu + overhead} on all nodes and in the network between them`,
      },
    ];
  });
  const limit = Math.min(path.mtu, ...tunnels.map((one) => Math.min(one.mtu, roomIn(one, path, links).room)));
  const vxlan = path.mtu - (OVERHEAD['vxlan']?.[path.family] ?? 0);
  const findings: Finding[] = [
    ...tooLarge,
    ...configured.flatMap(({ file, mtu }) => configurationFindings(file, mtu, limit)),
    ...podFindings(links, routes, limit),
    ...(limit < IPV6_MINIMUM ? [tooSmallForIPv6(limit, path)] : []),
  ];
  if (findings.length > 0) return findings;
  const what = `MTU ${path.mtu} of ${path.name}: packets of ${limit} bytes fit between nodes`;
  const ours = tunnels.length > 0 ? '' : `; with VXLAN the agent gives pods ${vxlan}`;
  return [{ level: 'ok', what: `${what}${ours}`, fix: null }];
}

/** Returns the device of the default route, IPv4 before IPv6. */
function uplinkOf(links: MtuFacts['links'], routes: MtuFacts['routes']): Path | null {
  const byPreference = [...routes]
    .filter(({ destination, device }) => destination.endsWith('/0') && device !== undefined)
    .map((route) => ({ route, family: familyOf(route.destination.split('/')[0] ?? '') ?? 'ipv4' }))
    .sort((a, b) => a.family.localeCompare(b.family) || (a.route.metric ?? 0) - (b.route.metric ?? 0));
  for (const { route, family } of byPreference) {
    const link = links.find(({ index }) => index === route.device);
    if (link) return { family, name: link.name, mtu: Math.min(link.mtu, route.mtu ?? link.mtu) };
  }
  return null;
}

/** Tunnels without an identifier of their own take it, and the size of packets, from routes. */
const isTunnelOfPods = ({ name, kind, up, vxlan }: MtuFacts['links'][number]): boolean =>
  up &&
  kind !== null &&
  kind in OVERHEAD &&
  !CILIUM_DEVICE.test(name) &&
  vxlan?.id !== 0 &&
  (kind !== 'wireguard' || PLUGIN_WIREGUARD.test(name));

/** Returns how large packets in a tunnel may be. */
function roomIn(
  { kind, vxlan }: MtuFacts['links'][number],
  path: Path,
  links: MtuFacts['links'],
): { readonly room: number; readonly overhead: number } {
  const family = (vxlan?.local && familyOf(vxlan.local)) || path.family;
  const overhead = OVERHEAD[kind ?? '']?.[family] ?? 0;
  const under = links.find(({ index }) => index === vxlan?.device)?.mtu ?? path.mtu;
  return { room: Math.min(under, path.mtu) - overhead, overhead };
}

function configurationFindings(file: string, mtu: number, limit: number): Finding[] {
  if (mtu <= limit) return [];
  return [
    {
      level: 'note',
      what: `${file} gives pods the MTU ${mtu}, but only ${limit} bytes fit between nodes`,
      fix: `set it to ${limit} in the configuration of the network plugin, and recreate the pods`,
    },
  ];
}

function podFindings(links: MtuFacts['links'], routes: MtuFacts['routes'], limit: number): Finding[] {
  // In a container (kind, LXC), the devices of the node itself are veths.
  const ofNode = new Set([...routes.map(({ device }) => device), ...links.map(({ vxlan }) => vxlan?.device)]);
  const large = links.filter(
    ({ index, name, kind, mtu }) =>
      kind === 'veth' && mtu > limit && !ofNode.has(index) && !CILIUM_DEVICE.test(name),
  );
  if (large.length === 0) return [];
  const names = large.slice(0, MAX_NAMES).map(({ name, mtu }) => `${name} (${mtu})`);
  const more = large.length > MAX_NAMES ? ' …' : '';
  return [
    {
      level: 'note',
      what: `${large.length} devices of pods have a larger MTU than fits between nodes (${limit}): ${names.join(', ')}${more}`,
      fix: `set the MTU in the configuration of the network plugin to ${limit}, and recreate the pods`,
    },
  ];
}

const tooSmallForIPv6 = (limit: number, { name }: Path): Finding => ({
  level: 'note',
  what: `only ${limit} bytes fit between nodes: IPv6 needs ${IPV6_MINIMUM}`,
  fix: `raise the MTU of ${name} on all nodes and in the network between them, or use no IPv6 in pods`,
});

export interface MtuPlaces {
  /** The folder of CNI configurations. */
  readonly confDir: string;
  /** The file in which flannel keeps its MTU. */
  readonly flannel: string;
}

/** Reads the facts of this node. `root`: of the node's file system. */
export function readMtuFacts(root: string, { confDir, flannel }: MtuPlaces): MtuFacts {
  using socket = openRouteSocket();
  const flannelMtu = /^FLANNEL_MTU=(\d+)$/m.exec(readOptionalFile(join(root, flannel)) ?? '')?.[1];
  return {
    links: listLinks(socket),
    routes: listRoutes(socket).filter(({ destination }) => destination.endsWith('/0')),
    configured: [
      ...pluginMtus(root, confDir),
      ...(flannelMtu === undefined ? [] : [{ file: flannel, mtu: Number(flannelMtu) }]),
    ],
  };
}

/** Returns the MTUs in the configuration that container runtimes use: the first one of the folder. */
function pluginMtus(root: string, confDir: string): { file: string; mtu: number }[] {
  const file = readOptionalFolder(join(root, confDir))
    .sort()
    .find((name) => /\.(conf|conflist|json)$/.test(name));
  if (file === undefined) return [];
  const path = join(confDir, file);
  let configuration: { plugins?: { mtu?: unknown }[]; mtu?: unknown } | null;
  try {
    configuration = JSON.parse(readOptionalFile(join(root, path)) ?? '{}');
  } catch {
    // Runtimes say what is wrong with it.
    return [];
  }
  return [configuration, ...(configuration?.plugins ?? [])].flatMap((one) =>
    typeof one?.mtu === 'number' && one.mtu > 0 ? [{ file: path, mtu: one.mtu }] : [],
  );
}

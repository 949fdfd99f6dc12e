import type { NetnsRef } from '../kernel/netns.ts';
import { type Link, listLinks, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { listRoutes, type Route } from '../kernel/rtnetlink/routes.ts';
import { isPodPort } from '../network/pod-link.ts';
import { UPLINK } from '../network/topology.ts';
import { TUNNEL } from '../network/tunnel-device.ts';
import type { TracedPlace } from '../trace/recorder.ts';
import type { ObservedDevice } from '../trace/sighting.ts';

/** Lists the devices of a namespace. `textOf`: a device in words; null: not observed. */
export function observedPlace(
  kind: TracedPlace['kind'],
  name: string,
  netns: NetnsRef,
  textOf: (link: Link) => string | null,
): TracedPlace {
  using socket = openRouteSocket(netns);
  const devices = new Map<number, ObservedDevice>();
  const hidden = new Set<number>();
  for (const link of listLinks(socket)) {
    const text = link.name === 'lo' ? 'loopback' : textOf(link);
    if (text === null) hidden.add(link.index);
    else devices.set(link.index, { name: link.name, text, isPort: link.master !== null, mtu: link.mtu });
  }
  return { kind, name, netns, devices, hidden };
}

/** Describes a device of a node. `owners`: pods by the names of their ports. */
export function nodeDevice(
  { name, kind }: Link,
  owners: ReadonlyMap<string, string>,
  uplink: string = UPLINK,
): string {
  const owner = owners.get(name);
  if (owner !== undefined) return `veth of ${owner}`;
  if (isPodPort(name)) return `veth ${name}`;
  if (name === uplink) return `uplink ${name}`;
  if (kind === 'bridge') return `bridge ${name}`;
  return kind === 'vxlan' ? `VXLAN ${name}` : name;
}

/** Returns the device towards the other nodes: below the tunnel, else of the default route; null: neither. */
export function uplinkOf(netns: NetnsRef): string | null {
  using socket = openRouteSocket(netns);
  const links = listLinks(socket);
  const below = links.find(({ name }) => name === TUNNEL)?.vxlan?.device;
  const isDefault = ({ destination }: Route) => /^(0\.0\.0\.0|::)\/0$/.test(destination);
  const index = below ?? listRoutes(socket).find(isDefault)?.device;
  return links.find((link) => link.index === index)?.name ?? null;
}

/** Describes a node whose devices are observed together with those of some of its pods, which name their ports. */
export function observedNode(name: string, netns: NetnsRef, pods: readonly TracedPlace[]): TracedPlace {
  const uplink = uplinkOf(netns) ?? UPLINK;
  const owners = new Map<number, string>();
  for (const pod of pods) {
    using socket = openRouteSocket(pod.netns);
    for (const { kind, link } of listLinks(socket))
      if (kind === 'veth' && link !== null) owners.set(link, pod.name.replace(/^pod /, ''));
  }
  return observedPlace('node', name, netns, (link) => {
    const owner = link.kind === 'veth' ? owners.get(link.index) : undefined;
    return nodeDevice(link, new Map(owner === undefined ? [] : [[link.name, owner]]), uplink);
  });
}

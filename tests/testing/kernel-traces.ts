import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { hasCode } from '../../src/lib/errors.ts';
import type { Cluster } from './cluster.ts';
import { type ClusterPlace, packetSockets, runIn } from './cluster-places.ts';

/** What a command can leave in the kernel, by place, as text that is equal if nothing has changed. */
export function kernelTraces(cluster: Cluster, places: readonly ClusterPlace[]): Record<string, string> {
  const found: Record<string, string> = { namespaces: readdirSync('/run/netns').sort().join(' ') };
  for (const place of places) {
    found[`packet sockets in ${place.name}`] = String(packetSockets(place));
    found[`netlink sockets in ${place.name}`] = netlinkSockets(place);
    found[`rules in ${place.name}`] = runIn(place, 'nft', '--stateless', 'list', 'ruleset');
    found[`devices in ${place.name}`] = runIn(place, 'ip', '-brief', 'link');
    found[`queueing in ${place.name}`] = runIn(place, 'tc', 'qdisc');
  }
  for (const { name, agent } of cluster.state().nodes)
    if (agent) found[`BPF objects of ${name}`] = bpfObjects(agent.pid);
  return found;
}

/** How many netlink sockets of each protocol are open. */
function netlinkSockets(place: ClusterPlace): string {
  const counts = new Map<string, number>();
  for (const line of runIn(place, 'cat', '/proc/net/netlink').trim().split('\n').slice(1)) {
    const [, protocol = ''] = line.split(/\s+/);
    counts.set(protocol, (counts.get(protocol) ?? 0) + 1);
  }
  return [...counts].sort().join(' ');
}

/** The identifiers of the BPF objects that a process holds. */
function bpfObjects(pid: number): string {
  const ids = new Set<string>();
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      if (!readlinkSync(join('/proc', String(pid), 'fd', fd)).includes('bpf')) continue;
      const info = readFileSync(join('/proc', String(pid), 'fdinfo', fd), 'utf8');
      for (const [text] of info.matchAll(/^(prog|map|link)_id:.*$/gm)) ids.add(text);
    } catch (error) {
      // Closed meanwhile.
      if (!hasCode(error, 'ENOENT')) throw error;
    }
  }
  return [...ids].sort().join(' ');
}

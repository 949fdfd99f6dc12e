import type { Node, Service, SliceEndpoint } from '../kube/types.ts';
import { ZONE_LABEL } from '../kube/well-known-labels.ts';
import type { SliceGroup } from './slice-packing.ts';

const MODE = 'service.kubernetes.io/topology-mode';
const MODE_BEFORE_1_27 = 'service.kubernetes.io/topology-aware-hints';
/** Hints are omitted if a zone's endpoints would receive this much more than their share (KEP-2433). */
const MAX_OVERLOAD = 0.2;

/** Returns the share of the cluster's CPUs in each zone; null if zones are fewer than two or unknown. */
export function zoneShares(nodes: Iterable<Node>): Map<string, number> | null {
  const cpus = new Map<string, number>();
  let total = 0;
  for (const node of nodes) {
    const labels = node.metadata?.labels ?? {};
    if ('node-role.kubernetes.io/control-plane' in labels || 'node-role.kubernetes.io/master' in labels)
      continue;
    const ready = node.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
    if (!ready) continue;
    const zone = labels[ZONE_LABEL];
    const cpu = cpuCount(node.status?.allocatable?.['cpu']);
    if (!zone || cpu <= 0) return null;
    cpus.set(zone, (cpus.get(zone) ?? 0) + cpu);
    total += cpu;
  }
  if (cpus.size < 2) return null;
  return new Map([...cpus].map(([zone, count]) => [zone, count / total]));
}

function cpuCount(quantity: string | undefined): number {
  if (quantity === undefined) return 0;
  return quantity.endsWith('m') ? Number(quantity.slice(0, -1)) / 1000 : Number(quantity);
}

/** Adds the hints that the Service requests: trafficDistribution overrides the older annotation. Pure. */
export function withHints(
  service: Service,
  groups: readonly SliceGroup[],
  shares: ReadonlyMap<string, number> | null,
): SliceGroup[] {
  switch (service.spec?.trafficDistribution) {
    case 'PreferClose':
    case 'PreferSameZone':
      return mapReady(groups, zoneHint);
    case 'PreferSameNode':
      return mapReady(groups, (endpoint) => {
        if (!endpoint.nodeName) return endpoint;
        const { hints } = zoneHint(endpoint);
        return { ...endpoint, hints: { ...hints, forNodes: [{ name: endpoint.nodeName }] } };
      });
  }
  const mode = service.metadata?.annotations?.[MODE] ?? service.metadata?.annotations?.[MODE_BEFORE_1_27];
  if (mode?.toLowerCase() !== 'auto') return [...groups];
  return (['IPv4', 'IPv6'] as const).flatMap((addressType) => {
    const own = groups.filter((group) => group.addressType === addressType);
    const zones = shares
      ? allocateZones(
          own.flatMap(({ endpoints }) => endpoints.filter(isReady)),
          shares,
        )
      : null;
    if (!zones) return own;
    return mapReady(own, (endpoint) => {
      const zone = zones.get(endpoint);
      return zone === undefined ? endpoint : { ...endpoint, hints: { forZones: [{ name: zone }] } };
    });
  });
}

function zoneHint(endpoint: SliceEndpoint): SliceEndpoint {
  return endpoint.zone ? { ...endpoint, hints: { forZones: [{ name: endpoint.zone }] } } : endpoint;
}

function isReady(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.ready !== false;
}

function mapReady(
  groups: readonly SliceGroup[],
  map: (endpoint: SliceEndpoint) => SliceEndpoint,
): SliceGroup[] {
  return groups.map((group) => ({
    ...group,
    endpoints: group.endpoints.map((endpoint) => (isReady(endpoint) ? map(endpoint) : endpoint)),
  }));
}

/**
 * Assigns endpoints to each zone by its share of the CPUs: its own first, then the surplus of others. Returns null if
 * that would overload a zone.
 */
function allocateZones(
  endpoints: readonly SliceEndpoint[],
  shares: ReadonlyMap<string, number>,
): Map<SliceEndpoint, string> | null {
  const count = endpoints.length;
  if (count < shares.size || endpoints.some(({ zone }) => !zone || !shares.has(zone))) return null;
  const wanted = new Map<string, number>();
  for (const [zone, share] of shares) {
    // The minimum number that overloads no endpoint of the zone.
    const least = Math.max(1, Math.ceil((share * count) / (1 + MAX_OVERLOAD)));
    wanted.set(zone, least);
  }
  const sum = [...wanted.values()].reduce((total, number) => total + number, 0);
  if (sum > count) return null;
  const result = new Map<SliceEndpoint, string>();
  const spare: SliceEndpoint[] = [];
  const left = new Map(wanted);
  for (const endpoint of endpoints) {
    const zone = endpoint.zone ?? '';
    const need = left.get(zone) ?? 0;
    if (need > 0) {
      left.set(zone, need - 1);
      result.set(endpoint, zone);
    } else spare.push(endpoint);
  }
  for (const [zone, need] of left) {
    for (let i = 0; i < need; i++) {
      const endpoint = spare.shift();
      if (!endpoint) return null;
      result.set(endpoint, zone);
    }
  }
  for (const endpoint of spare) result.set(endpoint, endpoint.zone ?? '');
  return result;
}

import type { IPFamily } from '../lib/address.ts';
import { endpointOrder } from './address-text.ts';
import { type EndpointKey, endpointKey } from './endpoint-key.ts';
import type { Endpoint, NodeView, Pool, Protocol } from './model.ts';
import type { ParsedSlice, SliceMember } from './slice-reader.ts';

/** An endpoint that may serve: ready, or terminating and still serving. */
export interface Candidate {
  readonly endpoint: Endpoint;
  readonly ready: boolean;
  readonly zones: readonly string[] | null;
  readonly nodes: readonly string[] | null;
}

/**
 * Returns the endpoints of one service port and family that may serve, merged over its slices and ordered
 * by address, then port. `slices` are ordered by name. If two slices list the same address and port, the
 * later one wins unless it is terminating: a running pod takes precedence over a terminating one with the
 * same address.
 *
 * `known` are endpoints of an earlier map; equal ones are reused, so that identity means "unchanged".
 */
export function mergeEndpoints(
  slices: readonly ParsedSlice[],
  port: { readonly name: string; readonly protocol: Protocol },
  family: IPFamily,
  nodeName: string,
  known: readonly Endpoint[],
): Candidate[] {
  const merged = new Map<string, { member: SliceMember; port: number }>();
  let usualPort = 0;
  for (const slice of slices) {
    if (slice.family !== family) continue;
    for (const slicePort of slice.ports) {
      if (slicePort.name !== port.name || slicePort.protocol !== port.protocol) continue;
      usualPort ||= slicePort.port;
      for (const member of slice.members) {
        // Nearly always all ports have the same number; then the address alone is the key, which creates no
        // new string.
        const key = slicePort.port === usualPort ? member.ip : `${member.ip} ${slicePort.port}`;
        if (member.terminating && merged.has(key)) continue;
        merged.set(key, { member, port: slicePort.port });
      }
    }
  }
  const previous = new Map(
    known.map((endpoint) => [endpointKey(endpoint.ip, endpoint.port, 'TCP'), endpoint]),
  );
  const ordered: { candidate: Candidate; order: number | string }[] = [];
  for (const { member, port: number } of merged.values()) {
    if (!member.ready && !(member.serving && member.terminating)) continue;
    const fresh: Endpoint = {
      ip: member.ip,
      port: number,
      local: member.nodeName !== null && member.nodeName === nodeName,
      terminating: !member.ready,
      nodeName: member.nodeName,
      target: member.target,
    };
    const old = known.length > 0 ? previous.get(endpointKey(member.ip, number, 'TCP')) : undefined;
    const endpoint = old && sameEndpoint(old, fresh) ? old : fresh;
    const candidate = { endpoint, ready: member.ready, zones: member.zones, nodes: member.nodes };
    ordered.push({ candidate, order: endpointOrder(member.ip, number) });
  }
  ordered.sort((a, b) => (a.order < b.order ? -1 : a.order > b.order ? 1 : 0));
  return ordered.map(({ candidate }) => candidate);
}

/**
 * Returns the cluster set (upstream's topology.go): ready endpoints that fit the topology; without any, all
 * endpoints that terminate and still serve, on any node.
 */
export function clusterEndpoints(candidates: readonly Candidate[], node: NodeView): readonly Endpoint[] {
  const ready = candidates.filter((candidate) => candidate.ready);
  if (ready.length === 0) return candidates.map((candidate) => candidate.endpoint);
  return byTopology(ready, node).map((candidate) => candidate.endpoint);
}

/**
 * Returns the local set: ready endpoints on this node; without any, endpoints here that terminate and still
 * serve. Ignores topology.
 */
export function localEndpoints(candidates: readonly Candidate[]): readonly Endpoint[] {
  const local = candidates.filter((candidate) => candidate.endpoint.local);
  const ready = local.filter((candidate) => candidate.ready);
  return (ready.length > 0 ? ready : local).map((candidate) => candidate.endpoint);
}

/** Returns endpoints that may serve but are not in a set. */
export function sparedEndpoints(
  candidates: readonly Candidate[],
  chosen: readonly Endpoint[],
): readonly Endpoint[] {
  if (candidates.length === chosen.length) return [];
  const taken = new Set(chosen);
  return candidates.map(({ endpoint }) => endpoint).filter((endpoint) => !taken.has(endpoint));
}

/** Returns how many endpoints of a set may be ejected: at most half of it, never the last. */
export const maxEjected = (endpoints: number): number => Math.floor(endpoints / 2);

/**
 * Removes failed endpoints from a set, as many as `maxEjected` allows. If more have failed, those listed
 * first in `ejected` are removed.
 */
export function withoutEjected(
  endpoints: readonly Endpoint[],
  protocol: Protocol,
  ejected: ReadonlySet<EndpointKey>,
): Pick<Pool, 'endpoints' | 'ejected'> {
  const most = maxEjected(endpoints.length);
  if (ejected.size === 0 || most === 0) return { endpoints };
  const failed = new Map<EndpointKey, Endpoint>();
  for (const endpoint of endpoints) {
    const key = endpointKey(endpoint.ip, endpoint.port, protocol);
    if (ejected.has(key)) failed.set(key, endpoint);
  }
  if (failed.size === 0) return { endpoints };
  const out = new Set<Endpoint>();
  for (const key of ejected) {
    const endpoint = failed.get(key);
    if (endpoint && out.size < most) out.add(endpoint);
  }
  return { endpoints: endpoints.filter((endpoint) => !out.has(endpoint)), ejected: [...out] };
}

/** Returns true if two endpoints are equal in every field. */
export function sameEndpoint(a: Endpoint, b: Endpoint): boolean {
  return (
    a === b ||
    (a.ip === b.ip &&
      a.port === b.port &&
      a.local === b.local &&
      a.terminating === b.terminating &&
      a.nodeName === b.nodeName &&
      a.target === b.target)
  );
}

/**
 * Node hints first, then zone hints; each kind applies only if every ready endpoint has one and at least
 * one names this node or zone.
 */
function byTopology(ready: readonly Candidate[], node: NodeView): readonly Candidate[] {
  const hinted = (hints: 'nodes' | 'zones', name: string | null): readonly Candidate[] | null => {
    if (name === null || !ready.every((candidate) => candidate[hints] !== null)) return null;
    const near = ready.filter((candidate) => candidate[hints]?.includes(name));
    return near.length > 0 ? near : null;
  };
  return hinted('nodes', node.name) ?? hinted('zones', node.zone) ?? ready;
}

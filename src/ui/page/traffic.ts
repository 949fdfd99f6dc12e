import type { EdgeView, FlowTick } from '../view.ts';

/** A flow edge, smoothed over some seconds. */
export interface LiveEdge extends Omit<EdgeView, 'count'> {
  /** Connections per second. */
  readonly rate: number;
}

/** Connections per second to a Service. */
export interface ServiceRate {
  readonly rate: number;
  readonly failed: number;
}

/** The traffic of the last seconds. */
export interface Traffic {
  readonly edges: ReadonlyMap<string, LiveEdge>;
  /** Connections per second by Service, and those of them that failed. */
  readonly services: ReadonlyMap<string, ServiceRate>;
  /** Connections per second. */
  readonly total: number;
  readonly omittedEdges: number;
  /** Ticks so far: none means that it is not known yet whether there is traffic. */
  readonly ticks: number;
}

export const NO_TRAFFIC: Traffic = {
  edges: new Map(),
  services: new Map(),
  total: 0,
  omittedEdges: 0,
  ticks: 0,
};

/** The weight of the newest tick. */
const WEIGHT = 0.4;
/** Seconds for which an edge stays after its last connection. */
export const SILENCE_S = 10;

/**
 * Adds a tick to the traffic. The result has the same maps, changed in place: they have thousands of entries, which would take
 * milliseconds to copy each second.
 */
export function addTick(traffic: Traffic, tick: FlowTick): Traffic {
  const { seconds } = tick;
  const isFirst = traffic.ticks === 0;
  // The same for all, also for those that begin later: the rates of edges add up to those of their Services, and to the total.
  const weight = isFirst ? 1 : WEIGHT;
  const edges: Map<string, Kept<LiveEdge>> = isFirst
    ? new Map()
    : (traffic.edges as Map<string, Kept<LiveEdge>>);
  for (const [key, edge] of edges) {
    edge.silentFor += seconds;
    edge.rate *= 1 - WEIGHT;
    if (edge.silentFor > SILENCE_S) edges.delete(key);
  }
  for (const { count, ...edge } of tick.edges) {
    const key = `${edge.client} ${edge.service ?? ''} ${edge.endpoint ?? ''} ${edge.verdict}`;
    const before = edges.get(key);
    if (!before) {
      edges.set(key, { ...edge, rate: (weight * count) / seconds, silentFor: 0 });
      continue;
    }
    before.rate += (weight * count) / seconds;
    before.latencyMs = edge.latencyMs ?? before.latencyMs;
    before.reason = edge.reason ?? before.reason;
    before.silentFor = 0;
  }
  const services: Map<string, Kept<ServiceRate>> = isFirst
    ? new Map()
    : (traffic.services as Map<string, Kept<ServiceRate>>);
  for (const [name, counts] of services) {
    counts.silentFor += seconds;
    counts.rate *= 1 - WEIGHT;
    counts.failed *= 1 - WEIGHT;
    if (counts.silentFor > SILENCE_S) services.delete(name);
  }
  for (const [name, [count, failures]] of Object.entries(tick.services)) {
    const before = services.get(name);
    if (!before) {
      services.set(name, {
        rate: (weight * count) / seconds,
        failed: (weight * failures) / seconds,
        silentFor: 0,
      });
      continue;
    }
    before.rate += (weight * count) / seconds;
    before.failed += (weight * failures) / seconds;
    before.silentFor = 0;
  }
  const now = tick.total / seconds;
  return {
    edges,
    services,
    // Not a rest of it that no edge shows.
    total: edges.size + services.size === 0 ? now : traffic.total * (1 - WEIGHT) + now * weight,
    omittedEdges: tick.omittedEdges,
    ticks: traffic.ticks + 1,
  };
}

type Kept<T> = { -readonly [K in keyof T]: T[K] } & { silentFor: number };

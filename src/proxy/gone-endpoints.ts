import type { Outcome } from '../failover/outcome.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, Node, SliceEndpoint } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

export interface GoneEndpoint {
  readonly ip: string;
  readonly port: number;
}

export interface GoneEndpointsOptions {
  readonly slices: Informer<EndpointSlice>;
  readonly nodes: Informer<Node>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Those of the endpoints that clients may be connected to. */
  readonly connected: (endpoints: readonly GoneEndpoint[]) => readonly GoneEndpoint[];
  /** Connects to an endpoint; null: that could not be tried. */
  readonly dial: (endpoint: GoneEndpoint) => Promise<Outcome['kind'] | null>;
  /** Resets the clients that are connected to these. */
  readonly end: (endpoints: readonly GoneEndpoint[]) => Promise<void>;
}

/** Slices move endpoints between them, and controllers write several: what is gone for that long is. */
const SETTLE_MS = 500;
const DIALS = 2;
/** At once; a node's death takes a hundred endpoints with it. */
const MAX_DIALS = 32;

/**
 * Ends connections to endpoints that are gone: no slice names them any more, or their node has died; and none
 * answers at their address, not even with a refusal. An endpoint that drains is left alone, and so is a pod that
 * lives on without its Service.
 */
export function watchGoneEndpoints(options: GoneEndpointsOptions): { close(): Promise<void> } {
  const { slices, nodes, clock, logger, connected, dial, end } = options;
  let candidates = new Map<string, GoneEndpoint>();
  let cancel: (() => void) | null = null;
  let running: Promise<void> | null = null;
  let closed = false;

  const isDead = (node: string | undefined): boolean => {
    if (node === undefined) return false;
    const conditions = nodes.get(node)?.status?.conditions;
    return nodes.hasSynced && !conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
  };
  /** Neither serves nor drains, and its node is dead. */
  const isLost = ({ conditions, nodeName }: SliceEndpoint): boolean =>
    conditions?.ready === false && conditions.serving === false && isDead(nodeName);

  const add = (slice: EndpointSlice, endpoints: Iterable<SliceEndpoint>) => {
    for (const { addresses } of endpoints) {
      const [ip] = addresses ?? [];
      for (const { port, protocol } of slice.ports ?? []) {
        if (ip === undefined || !port || (protocol ?? 'TCP') !== 'TCP') continue;
        candidates.set(`${ip} ${port}`, { ip, port });
      }
    }
    if (candidates.size > 0) schedule();
  };
  const removed = (before: EndpointSlice, after: EndpointSlice | null) => {
    const kept = new Set(after?.endpoints?.map(({ addresses }) => addresses?.[0]));
    add(
      before,
      (before.endpoints ?? []).filter(({ addresses }) => !kept.has(addresses?.[0])),
    );
  };
  const lost = (slice: EndpointSlice) => add(slice, (slice.endpoints ?? []).filter(isLost));

  function schedule(): void {
    if (closed || cancel || running) return;
    cancel = clock.after(SETTLE_MS, () => {
      cancel = null;
      running = look()
        .catch((error: unknown) => {
          logger.warn(
            { error: messageOf(error) },
            'connections to endpoints that are gone could not be ended',
          );
        })
        .finally(() => {
          running = null;
          if (candidates.size > 0) schedule();
        });
    });
  }

  async function look(): Promise<void> {
    const now = withoutLiving(candidates);
    candidates = new Map();
    if (now.size === 0) return;
    const silent = new Map<string, GoneEndpoint>();
    const queue = [...connected([...now.values()])];
    const worker = async () => {
      for (let next = queue.pop(); next && !closed; next = queue.pop()) {
        if (await isSilent(next)) silent.set(`${next.ip} ${next.port}`, next);
      }
    };
    await Promise.all(Array.from({ length: Math.min(MAX_DIALS, queue.length) }, worker));
    const gone = [...withoutLiving(silent).values()];
    if (gone.length === 0 || closed) return;
    logger.info({ count: gone.length, first: gone[0] }, 'ending connections to endpoints that are gone');
    await end(gone);
  }

  async function isSilent(endpoint: GoneEndpoint): Promise<boolean> {
    for (let i = 0; i < DIALS; i++) if ((await dial(endpoint)) !== 'timeout') return false;
    return true;
  }

  /** Leaves out what a slice still names, unless it is lost. */
  function withoutLiving(all: ReadonlyMap<string, GoneEndpoint>): Map<string, GoneEndpoint> {
    const left = new Map(all);
    if (left.size === 0) return left;
    const addresses = new Set([...left.values()].map(({ ip }) => ip));
    const living = new Set<string>();
    for (const slice of slices.list()) {
      for (const endpoint of slice.endpoints ?? []) {
        const [ip] = endpoint.addresses ?? [];
        if (ip !== undefined && addresses.has(ip) && !isLost(endpoint)) living.add(ip);
      }
    }
    for (const [key, { ip }] of left) if (living.has(ip)) left.delete(key);
    return left;
  }

  const stops = [
    slices.handle({
      onUpdate(slice, before) {
        removed(before, slice);
        lost(slice);
      },
      onDelete: (slice) => removed(slice, null),
    }),
    nodes.handle({
      onUpdate({ metadata }) {
        const name = metadata?.name;
        if (!isDead(name)) return;
        for (const slice of slices.list()) {
          if (slice.endpoints?.some(({ nodeName }) => nodeName === name)) lost(slice);
        }
      },
    }),
  ];
  return {
    async close() {
      closed = true;
      cancel?.();
      for (const stop of stops) stop();
      await running;
    },
  };
}

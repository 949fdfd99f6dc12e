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
  /** Returns the endpoints to which clients may be connected. */
  readonly connected: (endpoints: readonly GoneEndpoint[]) => readonly GoneEndpoint[];
  /** Connects to an endpoint; null: the attempt was not possible. */
  readonly dial: (endpoint: GoneEndpoint) => Promise<Outcome['kind'] | null>;
  /** Resets the clients of these endpoints. */
  readonly end: (endpoints: readonly GoneEndpoint[]) => Promise<void>;
}

/** The delay before a missing endpoint counts as removed: endpoints move between slices, and controllers write several. */
const SETTLE_MS = 500;
const DIALS = 2;
/** The number of concurrent attempts; the failure of a node affects a hundred endpoints. */
const MAX_DIALS = 32;

/**
 * Ends connections to removed endpoints: those that no slice lists any more, or whose node is not ready, if their
 * address does not answer, not even with a refusal. Draining endpoints, and pods that still run without their Service,
 * keep their connections.
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
  /** Returns true if an endpoint neither serves nor drains, and its node is not ready. */
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
          logger.warn({ error: messageOf(error) }, 'failed to end connections to removed endpoints');
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
    logger.info({ count: gone.length, first: gone[0] }, 'ending connections to removed endpoints');
    await end(gone);
  }

  async function isSilent(endpoint: GoneEndpoint): Promise<boolean> {
    for (let i = 0; i < DIALS; i++) if ((await dial(endpoint)) !== 'timeout') return false;
    return true;
  }

  /** Returns the endpoints that no slice lists, or that are lost. */
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

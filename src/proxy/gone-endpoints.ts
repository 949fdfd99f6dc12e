import type { Outcome } from '../failover/outcome.ts';
import type { Informer } from '../kube/informer.ts';
import type { EndpointSlice, SliceEndpoint } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';

export interface GoneEndpoint {
  readonly ip: string;
  readonly port: number;
}

export interface GoneEndpointsOptions {
  readonly slices: Informer<EndpointSlice>;
  /** Returns whether a Node exists and is ready. */
  readonly isNodeReady: (name: string) => Promise<boolean>;
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
 * Ends connections to removed endpoints: those that no slice lists, or that no longer serve and whose node is not
 * ready, if their address does not answer, not even with a refusal. Draining endpoints, and pods that still run without their
 * Service, keep their connections. The Node is read last, only if an endpoint that no longer serves does not answer: a
 * proxy need not follow the Nodes of other machines.
 */
export function watchGoneEndpoints(options: GoneEndpointsOptions): { close(): Promise<void> } {
  const { slices, isNodeReady, clock, logger, connected, dial, end } = options;
  let candidates = new Map<string, GoneEndpoint>();
  let cancel: (() => void) | null = null;
  let running: Promise<void> | null = null;
  let closed = false;

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
  const compare = (before: EndpointSlice, after: EndpointSlice | null) => {
    const now = new Map(after?.endpoints?.map((one) => [one.addresses?.[0], presence(one)]));
    add(
      before,
      (before.endpoints ?? []).filter((one) => presence(one) > (now.get(one.addresses?.[0]) ?? 0)),
    );
  };

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
    const now = goneOf(candidates);
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
    const ready = await readyNodes(silent);
    const gone = [...goneOf(silent, ready).values()];
    if (gone.length === 0 || closed) return;
    logger.info({ count: gone.length, first: gone[0] }, 'ending connections to removed endpoints');
    await end(gone);
  }

  async function isSilent(endpoint: GoneEndpoint): Promise<boolean> {
    for (let i = 0; i < DIALS; i++) if ((await dial(endpoint)) !== 'timeout') return false;
    return true;
  }

  /** Returns those nodes of endpoints that are ready; a node that is not known counts as such. */
  async function readyNodes(endpoints: ReadonlyMap<string, GoneEndpoint>): Promise<Set<string | undefined>> {
    const names = new Set([...listed(endpoints)].map(({ nodeName }) => nodeName));
    const ready = new Set<string | undefined>([undefined]);
    for (const name of names) if (name !== undefined && (await isNodeReady(name))) ready.add(name);
    return ready;
  }

  /** Returns the endpoints that no slice lists, and those that do not serve, except on some nodes. */
  function goneOf(
    all: ReadonlyMap<string, GoneEndpoint>,
    except: ReadonlySet<string | undefined> = new Set(),
  ): Map<string, GoneEndpoint> {
    const kept = new Set<string | undefined>();
    for (const one of listed(all)) if (!isOut(one) || except.has(one.nodeName)) kept.add(one.addresses?.[0]);
    return new Map([...all].filter(([, { ip }]) => !kept.has(ip)));
  }

  /** Yields the endpoints of the slices that have an address of `all`. */
  function* listed(all: ReadonlyMap<string, GoneEndpoint>): Generator<SliceEndpoint> {
    if (all.size === 0) return;
    const addresses = new Set<string | undefined>([...all.values()].map(({ ip }) => ip));
    for (const slice of slices.list()) {
      for (const endpoint of slice.endpoints ?? [])
        if (addresses.has(endpoint.addresses?.[0])) yield endpoint;
    }
  }

  const stop = slices.handle({
    onUpdate: (slice, before) => compare(before, slice),
    onDelete: (slice) => compare(slice, null),
  });
  return {
    async close() {
      closed = true;
      cancel?.();
      stop();
      await running;
    },
  };
}

/** Returns true if an endpoint neither serves nor drains. */
const isOut = ({ conditions }: SliceEndpoint): boolean =>
  conditions?.ready === false && conditions.serving === false;

/** Returns 2 for an endpoint that serves or drains, 1 for one that is only listed. */
const presence = (endpoint: SliceEndpoint): number => (isOut(endpoint) ? 1 : 2);

import { FLOW_STATUS, type Flow } from '../../kernel/conntrack/flow.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Change, Frontend, Protocol, ServiceMap } from '../../service/model.ts';
import { servingPlaces } from '../../service/pools.ts';

/** "address port" of the endpoints that flows may lead to; only of UDP, whose flows are compared. */
type Serving = ReadonlySet<string>;
const NOT_COMPARED: Serving = new Set();

/**
 * The endpoints of each frontend, by the destination of a flow's first packet. A copy, because flows are checked later,
 * when the ServiceMap may have changed.
 */
export interface ServingIndex {
  reset(map: ServiceMap): void;
  apply(change: Change): void;
  /** Returns true if the entry of a flow leads to an endpoint that no longer serves. */
  isStale(flow: Flow, isNodeAddress: (address: string) => boolean): boolean;
  /** Drops removed frontends, after their flows have been checked. */
  forgetGone(): void;
}

export function createServingIndex(): ServingIndex {
  const serving = new Map<string, Serving>();
  /** Removed frontends, whose UDP flows are still translated. */
  const gone = new Set<string>();

  function put(frontend: Frontend): void {
    const key = keyOf(frontend.family, frontend.address, frontend.protocol, frontend.port);
    gone.delete(key);
    if (frontend.protocol !== 'UDP') {
      serving.set(key, NOT_COMPARED);
      return;
    }
    serving.set(key, servingPlaces(frontend));
  }

  function find(flow: Flow, isNodeAddress: (address: string) => boolean): Serving | 'gone' | null {
    const { destination, destinationPort, protocol } = flow.original;
    const exact = `${destination} ${protocol} ${destinationPort}`;
    const found = serving.get(exact);
    if (found) return found;
    if (gone.has(exact)) return 'gone';
    const port = `${flow.family} ${protocol} ${destinationPort}`;
    if (!serving.has(port) && !gone.has(port)) return null;
    if (!isNodeAddress(destination)) return null;
    return serving.get(port) ?? 'gone';
  }

  return {
    forgetGone: () => gone.clear(),

    reset(map) {
      serving.clear();
      gone.clear();
      for (const frontend of map.frontends.values()) put(frontend);
    },

    apply(change) {
      for (const { before, after } of change.frontends) {
        if (after) put(after);
        else if (before) {
          const key = keyOf(before.family, before.address, before.protocol, before.port);
          serving.delete(key);
          gone.add(key);
        }
      }
    },

    isStale(flow, isNodeAddress) {
      const found = find(flow, isNodeAddress);
      if (found === null) return false;
      if (!isTranslated(flow)) {
        // The flow began before the rules existed, so none of its packets is translated. If it has a reply, a process of
        // the node or another host serves this address.
        return found !== 'gone' && (flow.status & FLOW_STATUS.seenReply) === 0;
      }
      if (flow.original.protocol !== PROTOCOL_NUMBER.UDP) return false;
      if (found === 'gone') return true;
      return !found.has(`${flow.reply.source} ${flow.reply.sourcePort}`);
    },
  };
}

/** IPVS, whose open connections outlast a switch to another mode, sets no status bit. */
export function isTranslated({ status, original, reply }: Flow): boolean {
  if ((status & FLOW_STATUS.destinationNat) !== 0) return true;
  return original.destination !== reply.source || original.destinationPort !== reply.sourcePort;
}

function keyOf(family: IPFamily, address: string | null, protocol: Protocol, port: number): string {
  return `${address ?? family} ${PROTOCOL_NUMBER[protocol]} ${port}`;
}

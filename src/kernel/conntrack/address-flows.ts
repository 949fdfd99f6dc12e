import type { IPFamily } from '../../lib/address.ts';
import { familyOf } from '../../lib/address.ts';
import type { NetnsRef } from '../netns.ts';
import { ConntrackConnection, type FlowFilter } from './connection.ts';
import type { Flow, Tuple } from './flow.ts';

/** Deletes the flows of addresses that change their owner. */
export interface AddressFlows {
  /** Deletes all flows with one of these addresses at an end, before or behind address translation. */
  forget(addresses: readonly string[]): Promise<void>;
  close(): void;
}

/** Addresses of which the kernel selects the flows; of more, all flows are read once. */
const FEW_ADDRESSES = 8;

/**
 * Opens the deletion for a namespace. A new owner of an address must not inherit the flows of the former one: the packets of an
 * open flow are those that policies already accepted. Requests during a deletion are executed together afterwards.
 */
export function openAddressFlows(netns: NetnsRef | undefined): AddressFlows {
  const connection = new ConntrackConnection(netns);
  let waiting = new Set<string>();
  let running: Promise<void> = Promise.resolve();
  let next: Promise<void> | null = null;

  async function forgetWaiting(): Promise<void> {
    next = null;
    const addresses = waiting;
    waiting = new Set();
    const few = await connection.listFewAsync();
    if (few !== null) {
      await connection.delete(few.filter(({ original, reply }) => isOf(addresses, original, reply)));
      return;
    }
    for (const family of ['ipv4', 'ipv6'] as const) {
      const own = [...addresses].filter((address) => familyOf(address) === family);
      if (own.length > 0) await connection.delete(flowsOf(connection, family, new Set(own)));
    }
  }

  return {
    forget(addresses) {
      for (const address of addresses) waiting.add(address);
      next ??= running
        .catch(() => {})
        .then(() => {
          running = forgetWaiting();
          return running;
        });
      return next;
    },
    close: () => connection.close(),
  };
}

function flowsOf(connection: ConntrackConnection, family: IPFamily, addresses: ReadonlySet<string>): Flow[] {
  if (family === 'ipv6' || addresses.size > FEW_ADDRESSES)
    return connection.list(family).filter(({ original, reply }) => isOf(addresses, original, reply));
  const filters = [...addresses].flatMap((address): FlowFilter[] => [
    { source: address },
    { destination: address },
    { replySource: address },
    { replyDestination: address },
  ]);
  const flows = filters.flatMap((filter) => connection.list(family, filter));
  return [...new Map(flows.map((flow) => [flow.id, flow])).values()];
}

const isOf = (addresses: ReadonlySet<string>, ...tuples: readonly Tuple[]): boolean =>
  tuples.some(({ source, destination }) => addresses.has(source) || addresses.has(destination));

import { type HeldAddress, type HeldAddresses, openHeldAddresses } from '../egress/held-addresses.ts';
import { openPolicyRoutes, type PolicyRoutes, type Way } from '../egress/policy-routes.ts';
import type { Informer } from '../kube/informer.ts';
import { addressOfLease, nodeOfSession } from '../kube/load-balancer.ts';
import type { Lease } from '../kube/types.ts';
import { familyOf } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { EgressSettings } from './announcer-messages.ts';

export interface EgressHolderOptions {
  readonly node: string;
  readonly leaseDurationMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether this node owns an address. */
  readonly isHeld: (address: string) => boolean;
  /** The nodes that have the addresses of gateways, after each change. */
  readonly onHolders: (holders: ReadonlyMap<string, string>) => void;
}

/** What the announcing thread does for egress gateways: it moves their packets to the node that has the address. */
export interface EgressHolder {
  /** Follows the Leases of addresses. */
  follow(leases: Informer<Lease>): void;
  configure(settings: EgressSettings | null): void;
  /** This node owns an address from now on. Returns true if it is one of a gateway. */
  started(address: string): boolean;
  stopped(address: string): void;
  /** Ends the translation at this node; routes and tables stay. */
  close(): void;
}

/** The share of the Lease's duration after which what is held is refreshed. */
const REFRESHES = 4;
const RETRY_MS = 500;
/** How often routes and tables are compared with the kernel's. */
const CHECK_MS = 10_000;

/**
 * Writes the routes to the nodes that have the addresses, and tells the kernel which ones this node has. It translates only while this
 * thread says so: the node of an agent that was killed or hangs stops when its Lease has expired. While the API server does
 * not answer, no node can take an address over, and this one goes on.
 */
export function holdEgressAddresses(options: EgressHolderOptions): EgressHolder {
  const { node, clock, logger, leaseDurationMs } = options;
  const owners = new Map<string, string>();
  let settings: EgressSettings | null = null;
  let held: HeldAddresses | null = null;
  let routes: PolicyRoutes | null = null;
  let cancelRefresh = () => {};
  let cancelRetry = () => {};
  let lastCheck = 0;
  let told = '';
  let isClosed = false;

  const numbers = () => new Map(settings?.addresses ?? []);
  const attempt = (what: string, work: () => void) => {
    try {
      work();
    } catch (error) {
      logger.warn({ err: error }, `failed to ${what}: ${messageOf(error)}`);
      cancelRetry();
      if (!isClosed) cancelRetry = clock.after(RETRY_MS, update);
    }
  };
  const ways = (): Way[] =>
    (settings?.addresses ?? []).flatMap(([address, number]) => {
      const family = familyOf(address);
      if (family === null) return [];
      const owner = owners.get(address) ?? '';
      const via = owner === node ? undefined : settings?.hops[owner]?.[family];
      return [{ family, number, hop: via === undefined ? null : { via, device: settings?.tunnel ?? null } }];
    });
  const hold = (addresses: readonly HeldAddress[]) =>
    attempt('hold egress addresses', () => held?.hold(addresses, leaseDurationMs));
  const holdAll = () =>
    hold(
      [...numbers()].flatMap(([address, number]) => (options.isHeld(address) ? [{ address, number }] : [])),
    );
  function update(): void {
    if (isClosed) return;
    attempt('write egress routes', () => routes?.write(ways()));
    holdAll();
    const holders = [...numbers().keys()].flatMap((address) => {
      const owner = owners.get(address) ?? '';
      return owner === '' ? [] : [[address, owner] as const];
    });
    const text = JSON.stringify(holders);
    if (text === told) return;
    told = text;
    options.onHolders(new Map(holders));
  }
  const refresh = () => {
    holdAll();
    if (clock.now() - lastCheck >= CHECK_MS) {
      lastCheck = clock.now();
      attempt('check egress routes', () => {
        const found = routes?.check() ?? [];
        if (found.length > 0) logger.warn({ found }, `restored egress routes: ${found.join(', ')}`);
      });
      held?.check().catch((error: unknown) => {
        if (!isClosed) logger.warn({ err: error }, `failed to check egress tables: ${messageOf(error)}`);
      });
    }
    if (!isClosed) cancelRefresh = clock.after(leaseDurationMs / REFRESHES, refresh);
  };
  const setOwner = (lease: Lease, owner: string) => {
    const address = addressOfLease(lease);
    if (address === null || (owners.get(address) ?? '') === owner) return;
    if (owner === '') owners.delete(address);
    else owners.set(address, owner);
    if (numbers().has(address)) update();
  };
  return {
    follow(leases) {
      const set = (lease: Lease) => setOwner(lease, nodeOfSession(lease.spec?.holderIdentity ?? ''));
      leases.handle({ onAdd: set, onUpdate: set, onDelete: (lease) => setOwner(lease, '') });
    },
    configure(next) {
      const before = numbers();
      settings = next;
      const after = numbers();
      for (const [address, number] of before)
        if (after.get(address) !== number)
          attempt('release an egress address', () => held?.release({ address, number }));
      if (next !== null && held === null) {
        attempt('open the egress tables', () => {
          routes ??= openPolicyRoutes(next.bridge);
          held = openHeldAddresses({ bridge: next.bridge, clock, logger });
        });
        cancelRefresh();
        refresh();
      }
      update();
    },
    started(address) {
      const number = numbers().get(address);
      if (number === undefined) return false;
      hold([{ address, number }]);
      return true;
    },
    stopped(address) {
      const number = numbers().get(address);
      if (number !== undefined)
        attempt('release an egress address', () => held?.release({ address, number }));
    },
    close() {
      for (const [address, number] of numbers())
        attempt('release an egress address', () => held?.release({ address, number }));
      isClosed = true;
      cancelRefresh();
      cancelRetry();
      held?.close();
      routes?.close();
    },
  };
}

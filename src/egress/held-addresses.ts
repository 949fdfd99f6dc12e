import type { NetnsRef } from '../kernel/netns.ts';
import { NFPROTO } from '../kernel/nftables/constants.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasCode } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { heldMarkOf, markOf } from './marks.ts';
import { GATEWAY_TABLE, HELD_MAP, HELD_TABLE, renderHeld } from './render.ts';

const FAMILIES = ['ipv4', 'ipv6'] as const;

export interface HeldAddress {
  readonly address: string;
  readonly number: number;
}

/** The addresses that this node may translate to. They expire in the kernel unless they are refreshed. */
export interface HeldAddresses {
  /** Lets the node translate to addresses for this time from now on, by one transaction for each family. */
  hold(held: readonly HeldAddress[], ms: number): void;
  /** Ends it now. */
  release(held: HeldAddress): void;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  /** The tables stay. */
  close(): void;
}

export interface HeldAddressesOptions {
  /** The name of the pods' bridge. */
  readonly bridge: string;
  readonly netns?: NetnsRef | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

/** Opens the tables, without any address. */
export function openHeldAddresses({ bridge, ...options }: HeldAddressesOptions): HeldAddresses {
  const tables = openTables(HELD_TABLE, options);
  for (const family of FAMILIES) tables.write(family, renderHeld(family, bridge));
  const change = (held: readonly HeldAddress[], ms: number | null) => {
    for (const family of FAMILIES) {
      const numbers = held.filter(({ address }) => familyOf(address) === family).map(({ number }) => number);
      if (numbers.length > 0) writeElements(tables, family, numbers, ms);
    }
  };
  return {
    hold: (held, ms) => change(held, ms),
    release: (held) => change([held], null),
    check: async () => (await tables.check()).map((family) => `${HELD_TABLE} (${family})`),
    close: () => tables.close(),
  };
}

/** Removes all tables of egress gateways from a node. */
export function removeGatewayTables(netns?: NetnsRef): void {
  for (const name of [GATEWAY_TABLE, HELD_TABLE]) {
    const tables = openTables(name, { netns });
    try {
      for (const family of FAMILIES) tables.write(family, null);
    } finally {
      tables.close();
    }
  }
}

export const openTables = (name: string, options: Omit<HeldAddressesOptions, 'bridge'>): KeptTables =>
  keepTables({ ...options, families: FAMILIES, name });

/** Replaces the elements, whose time an addition alone would not change (before Linux 6.12). */
function writeElements(
  tables: KeptTables,
  family: IPFamily,
  numbers: readonly number[],
  ms: number | null,
): void {
  const connection = tables.get(family)?.connection;
  if (!connection) return;
  const attempt = (some: readonly number[], remove: 'destroyElement' | 'deleteElement' | null) => {
    const batch = connection.batch(NFPROTO[family]);
    for (const number of some) {
      const key = [markOf(number)];
      if (remove) batch[remove](HELD_TABLE, HELD_MAP, { key });
      if (ms !== null)
        batch.addElement(HELD_TABLE, HELD_MAP, { key, data: [heldMarkOf(number)], timeoutMs: ms });
    }
    connection.commitSync(batch);
  };
  try {
    attempt(numbers, 'destroyElement');
    return;
  } catch (error) {
    // Kernels before 6.3 do not know the message.
    if (!hasCode(error, 'EINVAL', 'EOPNOTSUPP')) throw error;
  }
  for (const number of numbers) {
    try {
      attempt([number], 'deleteElement');
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error;
      if (ms !== null) attempt([number], null);
    }
  }
}

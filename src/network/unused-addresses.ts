import type { NetnsRef } from '../kernel/netns.ts';
import { PRIORITY } from '../kernel/nftables/priorities.ts';
import { type Cidr, familyOf, type IPFamily } from '../lib/address.ts';
import { type Clock, systemClock } from '../lib/clock.ts';
import { hasCode, messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { wordsOfAddress } from '../nft/encoding.ts';
import { type KeptTables, keepTables } from '../nft/kept-tables.ts';
import { maskOf } from '../nft/ranges.ts';
import {
  accept,
  addressFields,
  counter,
  countKey,
  deviceName,
  goto,
  hasAny,
  inSet,
  is,
  notInSet,
  overRate,
  type Rule,
  rejectHost,
  typesOf,
} from '../nft/rule.ts';
import { type ElementGroup, elements, group, type TableSpec } from '../nft/spec.ts';

/** The table of each family (`ip` and `ip6`). */
export const UNUSED_TABLE = 'fairlead-unused';

const FAMILIES = ['ipv4', 'ipv6'] as const;
const USED = 'used';
/** The pairs of a pod's address and a host on the node's links that the pod has sent to, and the rates of the pods. */
const ASKED = 'asked';
const ASKING = 'asking';
const ON_LINK = 'on-link';
/**
 * The hosts on the node's links that a pod may begin to send to: the kernel asks for three seconds for one that does not answer,
 * and has room for about a thousand.
 */
const NEW_HOSTS = { perSecond: 60, burst: 200 } as const;
/** For so long a pair is remembered after its last new connection; it is longer than the usual interval of scrapes. */
const ASKED_MS = 90_000;
const MAX_ASKED = 65_536;
const MAX_ASKING = 4096;
/** A bucket is full again after a shorter time. */
const ASKING_MS = 5000;
/** IPS_CONFIRMED: not the first packet of a connection. */
const CONFIRMED = 8;
/**
 * For so long an address without its pod stays silent: a client that connected to a Service is sent to another endpoint as long as
 * it has no answer, but an error ends its attempt.
 */
const SILENCE_MS = 10_000;

/**
 * Answers packets to addresses of the node's pod networks that no pod has with host unreachable, before the kernel asks for a
 * neighbour: it keeps an entry for each address that it asks for, in a table of about a thousand for the whole machine.
 * The same answer have packets of a pod to more hosts on the node's links than it may begin to send to; which addresses there
 * are unused is not known. Packets of the node's own processes do not pass this table: the kernel answers them after three seconds.
 */
export interface UnusedAddresses {
  /** Records that a pod has the address. Throws the kernel's error. */
  take(address: string): Promise<void>;
  /** Records that no pod has the address; packets to it are answered after ten seconds. */
  free(address: string): void;
  /** Reverts changes by other programs; returns a description of them. */
  check(): Promise<string[]>;
  /** Stops; the table stays. */
  close(): void;
}

export interface UnusedAddressesOptions {
  /** The name of the pods' bridge. */
  readonly bridge: string;
  /** The pod networks of this node. */
  readonly podCidrs: readonly Cidr[];
  /** The networks of the node's own links. */
  readonly links: readonly Cidr[];
  /** The addresses of the node's pods. */
  readonly used: readonly string[];
  readonly netns?: NetnsRef | undefined;
  /** See KeptTablesOptions. */
  readonly owned?: boolean | undefined;
  readonly clock?: Clock | undefined;
  readonly logger?: Logger | undefined;
}

/** Opens the table; on a kernel without the expression `reject` (CONFIG_NFT_REJECT) logs a warning, and does nothing. */
export function openUnusedAddresses({
  bridge,
  podCidrs,
  links,
  used,
  ...options
}: UnusedAddressesOptions): UnusedAddresses {
  const { clock = systemClock, logger = silentLogger } = options;
  const tables = openTables(options);
  /** Cancels the removal of an address that is silent. */
  const silent = new Map<string, () => void>();
  let closed = false;
  let isSupported = true;
  const write = (onLinks: readonly Cidr[]): unknown => {
    try {
      for (const family of FAMILIES)
        tables.write(family, renderUnused(family, bridge, { podCidrs, links: onLinks, used }));
      return null;
    } catch (error) {
      if (!hasCode(error, 'ENOENT', 'EOPNOTSUPP', 'EINVAL')) throw error;
      for (const family of FAMILIES) tables.write(family, null);
      return error;
    }
  };
  const warn = (error: unknown, whose: string, needed: string) =>
    logger.warn(
      { err: error },
      `packets to unused addresses of ${whose} make the kernel ask for neighbours, whose table a pod can fill: ${messageOf(error)}; the kernel needs the nf_tables expression ${needed}`,
    );
  const refused = write(links);
  if (refused) {
    const again = links.length > 0 ? write([]) : refused;
    isSupported = again === null;
    if (isSupported) warn(refused, "the node's links", 'limit (CONFIG_NFT_LIMIT)');
    else warn(again, 'the pod network', 'reject (CONFIG_NFT_REJECT)');
  }
  const change = async (address: string, isUsed: boolean) => {
    const family = familyOf(address) ?? 'ipv4';
    if (!isSupported || !podCidrs.some((cidr) => cidr.family === family)) return;
    await tables.change(family, address, isUsed ? renderAddress(address, family) : null);
  };
  return {
    async take(address) {
      silent.get(address)?.();
      silent.delete(address);
      await change(address, true);
    },
    free(address) {
      silent.get(address)?.();
      const cancel = clock.after(SILENCE_MS, () => {
        silent.delete(address);
        change(address, false).catch((error: unknown) => {
          if (!closed) logger.warn({ err: error, address }, `failed to free ${address}: ${messageOf(error)}`);
        });
      });
      silent.set(address, cancel);
    },
    check: async () => (await tables.check()).map((family) => `${UNUSED_TABLE} (${family})`),
    close() {
      closed = true;
      for (const cancel of silent.values()) cancel();
      tables.close();
    },
  };
}

/** Removes the table from a node. */
export function removeUnusedAddresses(netns?: NetnsRef): void {
  const tables = openTables({ netns });
  try {
    for (const family of FAMILIES) tables.write(family, null);
  } finally {
    tables.close();
  }
}

const openTables = (
  options: Pick<UnusedAddressesOptions, 'netns' | 'owned' | 'clock' | 'logger'>,
): KeptTables => keepTables({ ...options, families: FAMILIES, name: UNUSED_TABLE });

/** Renders one family's table; null for a node without pods of the family. */
export function renderUnused(
  family: IPFamily,
  bridge: string,
  { podCidrs, links, used }: Pick<UnusedAddressesOptions, 'podCidrs' | 'links' | 'used'>,
): TableSpec | null {
  const own = podCidrs.filter((cidr) => cidr.family === family);
  if (own.length === 0) return null;
  const ownLinks = links.filter((cidr) => cidr.family === family);
  const { source, destination } = addressFields(family);
  const unused = own.map(
    (cidr): Rule => [
      // The name of the device last: comparing it costs most, and nearly all packets are to addresses in use.
      is(destination, cidr.bytes, maskOf(cidr)),
      notInSet(USED, destination),
      is('meta.oifname', deviceName(bridge)),
      counter,
      rejectHost,
    ],
  );
  const toLinks = ownLinks.map(
    (cidr): Rule => [
      is(destination, cidr.bytes, maskOf(cidr)),
      is('meta.iifname', deviceName(bridge)),
      goto(ON_LINK),
    ],
  );
  const hasLinks = ownLinks.length > 0;
  return {
    family,
    name: UNUSED_TABLE,
    sets: [
      { name: USED, key: typesOf(destination) },
      ...(hasLinks
        ? [
            { name: ASKED, key: typesOf(source, destination), dynamic: true, size: MAX_ASKED },
            { name: ASKING, key: typesOf(source), dynamic: true, size: MAX_ASKING },
          ]
        : []),
    ],
    chains: [
      ...(hasLinks
        ? [
            {
              name: ON_LINK,
              rules: [
                [hasAny('ct.status', CONFIRMED), accept],
                [inSet(ASKED, source, destination), countKey(ASKED, [source, destination], ASKED_MS), accept],
                [overRate(ASKING, [source], NEW_HOSTS, ASKING_MS), counter, rejectHost],
                [countKey(ASKED, [source, destination], ASKED_MS)],
              ],
            },
          ]
        : []),
      {
        name: 'forward',
        base: { type: 'filter', hook: 'forward', priority: PRIORITY.unusedAddresses },
        rules: [...unused, ...toLinks],
      },
    ],
    groups: new Map(
      used
        .filter((address) => familyOf(address) === family)
        .map((address) => [address, renderAddress(address, family)]),
    ),
  };
}

const renderAddress = (address: string, family: IPFamily): ElementGroup =>
  group([elements(USED, Uint32Array.from(wordsOfAddress(address, family)))]);

import { describeServer, type ShownRealServer, type VirtualServer } from '../../../kernel/ipvs/codec.ts';
import { IpvsConnection } from '../../../kernel/ipvs/connection.ts';
import { readBe16, readU32 } from '../../../kernel/netlink/attributes.ts';
import { NftConnection } from '../../../kernel/nftables/connection.ts';
import { NFPROTO } from '../../../kernel/nftables/constants.ts';
import type { DumpedElement } from '../../../kernel/nftables/dump.ts';
import { addressBytes, type IPFamily } from '../../../lib/address.ts';
import { hexOf } from '../../../nft/encoding.ts';
import {
  contentOf,
  type KernelTable,
  readKernelTable,
  type TableContent,
} from '../../testing/kernel-table.ts';
import { ALIAS } from '../frontend-plan.ts';
import { TABLE } from '../layout.ts';
import { serverKey } from '../server-table.ts';
import { findInterface, readAddresses } from '../service-interface.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];

export interface KernelServer {
  readonly server: VirtualServer;
  readonly reals: readonly ShownRealServer[];
}

/** All state of the mode in the kernel. */
export interface KernelState {
  readonly tables: Readonly<Record<IPFamily, KernelTable>>;
  /** By `serverKey`. */
  readonly servers: ReadonlyMap<string, KernelServer>;
  /** Addresses of the mode's interface, and of others. */
  readonly bound: ReadonlySet<string>;
  readonly others: ReadonlySet<string>;
}

export interface KernelReader {
  read(): KernelState;
  close(): void;
}

export function openKernelReader(netns: string): KernelReader {
  const ipvs = new IpvsConnection(netns);
  const nft = new NftConnection(netns);
  return {
    read() {
      const { ours, others } = readAddresses(findInterface(netns), netns);
      return {
        tables: {
          ipv4: readKernelTable(nft, NFPROTO.ipv4, TABLE),
          ipv6: readKernelTable(nft, NFPROTO.ipv6, TABLE),
        },
        servers: new Map(
          ipvs
            .servers()
            .map((server) => [serverKey(server.id), { server, reals: ipvs.realServers(server.id) }]),
        ),
        bound: ours,
        others,
      };
    },
    close() {
      ipvs.close();
      nft.close();
    },
  };
}

/** The state that must not depend on the order of changes. */
export interface KernelContent {
  readonly tables: readonly TableContent[];
  /** Servers with a frontend address by name, and the number of others. */
  readonly servers: ReadonlyMap<string, string>;
  readonly bound: readonly string[];
}

/** Returns a state without the arbitrary numbers of servers: each is replaced by its server. */
export function contentOfState(state: KernelState): KernelContent {
  const named = new Map<string, string>();
  let numbered = 0;
  for (const { server, reals } of state.servers.values()) {
    const { id } = server;
    if ('mark' in id || id.address === ALIAS[id.family]) numbered++;
    else named.set(describeServer(id), describe({ server, reals }));
  }
  named.set('numbered', String(numbered));
  return {
    tables: FAMILIES.map((family) => contentOf(withoutNumbers(state, family))),
    servers: new Map([...named].sort()),
    bound: [...state.bound].sort(),
  };
}

function describe(entry: KernelServer | undefined): string {
  if (!entry) return 'nothing';
  const { scheduler, schedulerFlags, persistenceSeconds } = entry.server;
  const reals = entry.reals.map(({ address, port, weight }) => `${address} ${port} weight ${weight}`);
  return `${scheduler} ${schedulerFlags} ${persistenceSeconds} → ${reals.sort().join(', ')}`;
}

function withoutNumbers(state: KernelState, family: IPFamily): KernelTable {
  const alias = addressBytes(ALIAS[family]) ?? new Uint8Array(0);
  const sets = [...state.tables[family].sets].map(([name, elements]) => {
    const replaced = [...elements].map(([key, element]): [string, DumpedElement] => {
      const { data, comment } = element;
      if (data && name.includes('-marks')) {
        const leadsTo = describe(state.servers.get(`${family} ${readU32(data)}`));
        return [key, { ...element, data: null, comment: `${comment} ${leadsTo}` }];
      }
      const head = element.key.subarray(0, alias.length);
      if (data && name.includes('redirects-')) {
        const port = readBe16(data, data.length - 4);
        const server = [...state.servers.values()].find(
          ({ server: { id } }) => 'address' in id && id.address === ALIAS[family] && id.port === port,
        );
        return [key, { ...element, data: null, comment: `${comment} ${describe(server)}` }];
      }
      if (name === 'services' && Buffer.compare(head, alias) === 0) {
        const port = readBe16(element.key, element.key.length - 4);
        return [`alias ${port}`, element];
      }
      return [key, element];
    });
    // Entries of the alias address by their contents, not by their ports.
    const aliases = replaced.filter(([key]) => key.startsWith('alias'));
    const rest = replaced.filter(([key]) => !key.startsWith('alias'));
    const sorted = aliases.sort(([, a], [, b]) => textOf(a).localeCompare(textOf(b)));
    return [name, new Map([...rest, ...sorted.map(([, e], i) => [`alias ${i}`, e] as const)])] as const;
  });
  return { ...state.tables[family], sets: new Map(sets) };
}

const textOf = ({ verdict, comment, data }: DumpedElement): string =>
  `${comment} ${verdict} ${data && hexOf(data)}`;

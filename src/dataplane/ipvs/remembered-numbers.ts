import { readBe16, readU32 } from '../../kernel/netlink/attributes.ts';
import { NFPROTO } from '../../kernel/nftables/constants.ts';
import { addressBytes } from '../../lib/address.ts';
import { hasCode } from '../../lib/errors.ts';
import { hexOf } from '../../nft/encoding.ts';
import { type ServiceMap, SOURCE_CLASSES } from '../../service/model.ts';
import { keyingOf } from '../nftables/entries.ts';
import { SCOPES } from '../nftables/layout.ts';
import { slotOf } from './frontend-plan.ts';
import { markMap, redirectMap, TABLE } from './layout.ts';
import type { Kernel, Programmed } from './programming.ts';

/** Gives slots the marks and aliases that they have in the kernel, so that their servers keep their connections. */
export function rememberNumbers({ nft }: Kernel, state: Programmed, map: ServiceMap): void {
  for (const [family, table] of state.tables) {
    const protocol = NFPROTO[family];
    if (!nft.tables(protocol).some(({ name }) => name === TABLE)) continue;
    const read = (name: string): Map<string, Uint8Array> => {
      try {
        const elements = nft.elements(protocol, TABLE, name);
        return new Map(elements.map((e) => [hexOf(e.key), e.data ?? new Uint8Array(4)]));
      } catch (error) {
        // A table of another release, or one that somebody took the map from.
        if (!hasCode(error, 'ENOENT')) throw error;
        return new Map();
      }
    };
    const maps = new Map<string, Map<string, Uint8Array>>();
    for (const keying of ['address', 'port'] as const) {
      for (const scope of SCOPES) maps.set(markMap(keying, scope), read(markMap(keying, scope)));
      for (const source of SOURCE_CLASSES)
        maps.set(redirectMap(keying, source), read(redirectMap(keying, source)));
    }
    for (const frontend of map.frontends.values()) {
      if (frontend.family !== family || (frontend.address !== null && !addressBytes(frontend.address)))
        continue;
      const keying = keyingOf(frontend);
      const head = table.headHex(frontend);
      for (const source of SOURCE_CLASSES) {
        const route = frontend.routes[source];
        if (route.action !== 'forward') continue;
        const slot = slotOf(frontend, route.pool, route.masquerade);
        const scopes = source === 'node' ? (['any'] as const) : ([source, 'any'] as const);
        const mark = scopes.map((scope) => maps.get(markMap(keying, scope))?.get(head)).find(Boolean);
        if (mark && state.scheme.isOurs(readU32(mark))) state.marks.remember(slot, readU32(mark));
        const alias = maps.get(redirectMap(keying, source))?.get(head);
        if (alias) state.aliases.remember(slot, readBe16(alias, alias.length - 4));
      }
    }
  }
}

import { readBe16, readU32 } from '../../kernel/netlink/attributes.ts';
import { addressBytes } from '../../lib/address.ts';
import { bytesText, wordsText } from '../../nft/encoding.ts';
import { type ServiceMap, SOURCE_CLASSES } from '../../service/model.ts';
import { frontendKey, KEYINGS, keyingOf } from '../rules/frontend-keys.ts';
import { ALL_SOURCES, lookupsOf } from '../rules/pick-chains.ts';
import { holderOf } from './frontend-plan.ts';
import { markMap, redirectMap } from './layout.ts';
import type { Kernel, Programmed } from './programmed.ts';

/** Restores the marks and alias ports of holders from the kernel, so that their servers keep their connections. */
export function restoreMarks({ tables }: Kernel, state: Programmed, map: ServiceMap): void {
  for (const table of tables) {
    const read = (name: string): Map<string, Uint8Array> =>
      new Map(table.read(name).map(({ key, data }) => [bytesText(key), data ?? new Uint8Array(4)]));
    const maps = new Map<string, Map<string, Uint8Array>>();
    for (const keying of KEYINGS) {
      for (const sources of ALL_SOURCES) maps.set(markMap(keying, sources), read(markMap(keying, sources)));
      for (const source of SOURCE_CLASSES) {
        maps.set(redirectMap(keying, source), read(redirectMap(keying, source)));
      }
    }
    for (const frontend of map.frontends.values()) {
      if (frontend.family !== table.family) continue;
      if (frontend.address !== null && !addressBytes(frontend.address)) continue;
      const keying = keyingOf(frontend);
      const words = frontendKey(frontend);
      const key = wordsText(words, 0, words.length);
      for (const source of SOURCE_CLASSES) {
        const route = frontend.routes[source];
        if (route.action !== 'forward') continue;
        const holder = holderOf(frontend, route.pool, route.masquerade);
        const mark = lookupsOf(source)
          .map((sources) => maps.get(markMap(keying, sources))?.get(key))
          .find(Boolean);
        if (mark && state.scheme.isOurs(readU32(mark))) state.marks.restore(holder, readU32(mark));
        const alias = maps.get(redirectMap(keying, source))?.get(key);
        if (alias) state.aliases.restore(holder, readBe16(alias, alias.length - 4));
      }
    }
  }
}

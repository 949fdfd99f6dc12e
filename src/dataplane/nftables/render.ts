import type { ElementVerdict } from '../../kernel/nftables/batch.ts';
import { errorOf } from '../../lib/errors.ts';
import {
  type ElementGroup,
  type Elements,
  elements,
  type Fragment,
  group,
  indexedElements,
  type TableSpec,
} from '../../nft/spec.ts';
import type { Endpoint, Frontend, FrontendKey, Route, ServiceMap } from '../../service/model.ts';
import {
  CLUSTER_IPS,
  HAIRPIN,
  NODE_OWNER,
  nodeGroup,
  noteAddresses,
  sourceRangeElements,
} from '../rules/address-elements.ts';
import { EndpointWords } from '../rules/endpoint-words.ts';
import { commentOf, frontendKey, keyingOf } from '../rules/frontend-keys.ts';
import { frontendMap, type Pick, type Sources } from '../rules/pick-chains.ts';
import { sizeClass } from '../rules/size-class.ts';
import { type Layout, stickySet } from './layout.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead';

/** The entry of a frontend in one map: for all sources, or for a class with an exception. */
export interface Entry {
  readonly sources: Sources;
  /** Null: rejected or dropped. */
  readonly pick: Pick | null;
  readonly verdict: 'pick' | 'reject' | 'drop';
  readonly endpoints: readonly Endpoint[];
}

/** Renders one family's table. Invalid frontends are left out and added to `failed`. */
export function renderTable(
  name: string,
  layout: Layout,
  map: ServiceMap,
  failed: Map<FrontendKey, Error>,
): TableSpec {
  const { family, chains, sets } = layout;
  const groups = new Map<string, ElementGroup>();
  const words = new EndpointWords(family, { whole: true });
  groups.set(NODE_OWNER, nodeGroup(map.node, family));
  noteAddresses(groups, CLUSTER_IPS, family, map.clusterIPs.keys());
  noteAddresses(groups, HAIRPIN, family, map.hairpinAddresses);
  for (const frontend of map.frontends.values()) {
    if (frontend.family !== family) continue;
    const rendered = renderOrFail(frontend, layout, words, failed);
    if (rendered) groups.set(frontend.key, rendered);
  }
  return { family, name, chains, sets, groups };
}

/** Returns null, and adds it to `failed`, if the frontend is invalid. */
export function renderOrFail(
  frontend: Frontend,
  layout: Layout,
  words: EndpointWords,
  failed: Map<FrontendKey, Error>,
): ElementGroup | null {
  try {
    return renderFrontend(frontend, layout, words);
  } catch (error) {
    failed.set(frontend.key, errorOf(error));
    return null;
  }
}

/** Renders all elements of a table for a frontend. Throws FairleadError EINVAL for an invalid address. */
export function renderFrontend(frontend: Frontend, layout: Layout, words: EndpointWords): ElementGroup {
  const key = frontendKey(frontend);
  const keying = keyingOf(frontend);
  const comment = commentOf(frontend);
  const list: Elements[] = [];
  const needs: Fragment[] = [];
  for (const { sources, pick, verdict, endpoints } of entriesOf(frontend, layout.hasPods)) {
    let leadsTo: ElementVerdict = verdict === 'drop' ? 'drop' : REJECT;
    if (pick) {
      const target = layout.pick(pick);
      needs.push(target.needs);
      list.push(indexedElements(target.map, key, words.read(endpoints)));
      leadsTo = target.verdict;
    }
    list.push(elements(frontendMap(keying, sources), key, { verdict: leadsTo, comment }));
  }
  const { affinitySeconds } = frontend;
  if (affinitySeconds !== null) {
    needs.push(layout.timeout(affinitySeconds));
    list.push(elements(stickySet(keying, affinitySeconds), key));
  }
  if (frontend.allowedSources) list.push(...sourceRangeElements(frontend, key));
  return group(list, needs);
}

const REJECT = { goto: 'reject' };

/**
 * Renders a frontend's routes: the node's own route applies to all source classes with the same route, where pods may
 * be exempt from masquerading; exceptions are in maps that a class looks up first.
 */
export function entriesOf(frontend: Frontend, hasPods: boolean): Entry[] {
  const { node, pod, external } = frontend.routes;
  const podsAlike = !hasPods || (sameTarget(node, pod) && (!masquerades(pod) || masquerades(node)));
  const externalAlike = sameTarget(node, external) && masquerades(external) === masquerades(node);
  const onlyNonpods = hasPods && podsAlike && masquerades(node) && !masquerades(pod);
  const entries = [entryOf(frontend, 'any', node, onlyNonpods)];
  if (!podsAlike) entries.push(entryOf(frontend, 'pod', pod, false));
  if (!externalAlike) entries.push(entryOf(frontend, 'external', external, false));
  return entries;
}

function entryOf(frontend: Frontend, sources: Sources, route: Route, onlyNonpods: boolean): Entry {
  if (route.action !== 'forward') return { sources, pick: null, verdict: route.action, endpoints: [] };
  const { endpoints } = route.pool;
  return {
    sources,
    verdict: 'pick',
    pick: {
      keying: keyingOf(frontend),
      sources,
      size: sizeClass(endpoints.length),
      sticky: frontend.affinitySeconds !== null,
      masquerade: route.masquerade ? (onlyNonpods ? 'nonpod' : 'all') : 'none',
    },
    endpoints,
  };
}

const masquerades = (route: Route) => route.action === 'forward' && route.masquerade;

function sameTarget(a: Route, b: Route): boolean {
  if (a.action === 'forward') return b.action === 'forward' && a.pool.id === b.pool.id;
  return a.action === b.action;
}

import type { ElementVerdict } from '../../kernel/nftables/batch.ts';

import {
  type AddressSet,
  type ElementGroup,
  type Elements,
  elements,
  group,
  indexedElements,
  type TableSpec,
} from '../../nft/spec.ts';
import {
  type Endpoint,
  type Frontend,
  type FrontendKey,
  type NodeView,
  SOURCE_CLASSES,
} from '../../service/model.ts';
import {
  HAIRPIN,
  NODE_OWNER,
  nodeGroup,
  noteAddresses,
  sourceRangeElements,
} from '../rules/address-elements.ts';
import { EndpointWords } from '../rules/endpoint-words.ts';
import { addressAndPort, commentOf, frontendKey, type Keying, keyingOf } from '../rules/frontend-keys.ts';
import { frontendMap, type PickTarget, type Sources } from '../rules/pick-chains.ts';
import { sizeClass } from '../rules/size-class.ts';
import { ALIAS, type FrontendPlan, type SourceAction } from './frontend-plan.ts';
import { type Layout, LOCALHOST_MAP, markMap, redirectMap, steerChain, TABLE } from './layout.ts';

/** The addresses of the mode's interface, on which only Services' ports answer. */
export const ADDRESSES: AddressSet = { set: 'addresses', times: 1, prefix: 'addresses ' };

/** The entry of a frontend in one map: for all sources, or for a class with an exception. */
export interface Entry {
  readonly sources: Sources;
  readonly verdict: ElementVerdict;
  /** Null if the packet is not steered. */
  readonly mark: number | null;
}

/** Renders one family's table. `bound`: the addresses of the mode's interface. */
export function renderTable(
  layout: Layout,
  node: NodeView,
  contents: {
    readonly plans: ReadonlyMap<FrontendKey, FrontendPlan>;
    readonly bound: Iterable<string>;
    readonly hairpinAddresses: Iterable<string>;
  },
): TableSpec {
  const { family, chains, sets } = layout;
  const groups = new Map<string, ElementGroup>([[NODE_OWNER, nodeGroup(node, family)]]);
  noteAddresses(groups, ADDRESSES, family, contents.bound);
  noteAddresses(groups, HAIRPIN, family, contents.hairpinAddresses);
  const words = new EndpointWords(family, { whole: true });
  for (const [key, plan] of contents.plans) {
    if (plan.frontend.family === family) groups.set(key, renderFrontend(plan, layout, words));
  }
  return { family, name: TABLE, chains, sets, groups };
}

/** Renders all elements of a table for a frontend. Throws FairleadError EINVAL for an invalid address. */
export function renderFrontend(
  plan: FrontendPlan,
  layout: Layout,
  words = new EndpointWords(layout.family, { whole: false }),
): ElementGroup {
  const { frontend } = plan;
  const keying = keyingOf(frontend);
  const key = frontendKey(frontend);
  const comment = commentOf(frontend);
  const withData = (data: ArrayLike<number>) => Uint32Array.from([...key, ...Array.from(data)]);
  const list: Elements[] = sourceRangeElements(frontend, key);
  for (const { sources, verdict, mark } of entriesOf(plan, layout.hasPods)) {
    if (mark !== null) list.push(elements(markMap(keying, sources), withData([mark]), { comment }));
    list.push(elements(frontendMap(keying, sources), key, { verdict, comment }));
  }
  const aliases = new Map<number, ElementVerdict>();
  for (const source of SOURCE_CLASSES) {
    const taken = plan.actions[source];
    // Pods that cannot be recognized are external.
    if (taken.action !== 'redirect' || (source === 'pod' && !layout.hasPods)) continue;
    const data = addressAndPort(ALIAS[frontend.family], taken.port, frontend.family);
    list.push(elements(redirectMap(keying, source), withData(data), { comment }));
    aliases.set(taken.port, taken.masquerade ? { goto: 'masquerade' } : 'accept');
  }
  for (const [port, verdict] of aliases) {
    list.push(elements(frontendMap('address', 'any'), aliasKey(frontend, port), { verdict, comment }));
  }
  if (!layout.localhostNodePorts || frontend.address !== null) return group(list);
  const { verdict, target, endpoints } = localhostOf(frontend, layout);
  if (target) list.push(indexedElements(target.map, key, words.read(endpoints)));
  list.push(elements(LOCALHOST_MAP, key, { verdict, comment }));
  return group(list, target ? [target.needs] : []);
}

const aliasKey = ({ family, protocol }: Frontend, port: number): Uint32Array =>
  frontendKey({ address: ALIAS[family], family, protocol, port });

/**
 * Renders a frontend's actions: that for the node's processes is the entry of all source classes with the same action, where
 * pods may be exempt from masquerading; exceptions are in maps that a class looks up first.
 */
export function entriesOf({ frontend, actions }: FrontendPlan, hasPods: boolean): Entry[] {
  const keying = keyingOf(frontend);
  const { node, pod, external } = actions;
  const onlyNonpods = hasPods && node.action === 'masquerade' && pod.action === 'pass';
  const entry = (sources: Sources, taken: SourceAction): Entry => ({
    sources,
    verdict: verdictOf(taken, keying, sources),
    mark: taken.action === 'steer' ? taken.mark : null,
  });
  const any = onlyNonpods
    ? { sources: 'any' as const, verdict: { goto: 'masquerade-nonpod' }, mark: null }
    : entry('any', node);
  return [
    any,
    ...(hasPods && !onlyNonpods && !sameAction(node, pod) ? [entry('pod', pod)] : []),
    ...(sameAction(node, external) ? [] : [entry('external', external)]),
  ];
}

/**
 * On loopback addresses the client is always the same: with affinity, so is the endpoint of a node port.
 */
function localhostOf(
  frontend: Frontend,
  layout: Layout,
): { verdict: ElementVerdict; target: PickTarget | null; endpoints: readonly Endpoint[] } {
  const route = frontend.routes.node;
  if (route.action !== 'forward') {
    return { verdict: { goto: route.action === 'drop' ? 'lose' : 'refuse' }, target: null, endpoints: [] };
  }
  const all = route.pool.endpoints;
  const endpoints = frontend.affinitySeconds === null ? all : all.slice(0, 1);
  const size = sizeClass(endpoints.length);
  const target = layout.pick({ keying: 'port', sources: 'any', size, sticky: false, masquerade: 'all' });
  return { verdict: target.verdict, target, endpoints };
}

function verdictOf(taken: SourceAction, keying: Keying, sources: Sources): ElementVerdict {
  switch (taken.action) {
    case 'pass':
    case 'redirect':
      return 'accept';
    case 'masquerade':
      return { goto: 'masquerade' };
    case 'steer':
      return { goto: steerChain(keying, sources) };
    case 'reject':
      return { goto: 'refuse' };
    case 'drop':
      return { goto: 'lose' };
  }
}

/** Returns true if the same entry applies. Redirected packets return with another destination: they are accepted too. */
function sameAction(a: SourceAction, b: SourceAction): boolean {
  const passes = ({ action }: SourceAction) => action === 'pass' || action === 'redirect';
  if (passes(a) && passes(b)) return true;
  return a.action === b.action && (a.action !== 'steer' || b.action !== 'steer' || a.mark === b.mark);
}

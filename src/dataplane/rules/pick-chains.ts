import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import { dnatTo, drop, goto, type Statement, setMark } from '../../nft/rule.ts';
import type { ChainSpec, Fragment } from '../../nft/spec.ts';
import type { NodeView, SourceClass } from '../../service/model.ts';
import type { Keying } from './frontend-keys.ts';
import type { ServiceRules } from './service-rules.ts';
import { classBefore } from './size-class.ts';

/** `any`: the rule for all sources; `pod`, `external`: exceptions for packets of this class. */
export type Sources = 'any' | 'pod' | 'external';
export const ALL_SOURCES: readonly Sources[] = ['any', 'pod', 'external'];

/** Returns where packets of a class look for their entry, in order: the node's processes have no exceptions. */
export const lookupsOf = (source: SourceClass): readonly Sources[] =>
  source === 'node' ? ['any'] : [source, 'any'];

/** Returns the entry that packets of a class find. */
export const entryFor = <T extends { readonly sources: Sources }>(
  entries: readonly T[],
  source: SourceClass,
): T | undefined =>
  entries.find(({ sources }) => sources === source) ?? entries.find(({ sources }) => sources === 'any');

/** `nonpod`: for all packets that do not come from a pod. */
export type MasqueradeOf = 'none' | 'nonpod' | 'all';

/** Selects the shared chain that picks a frontend's endpoint. */
export interface Pick {
  readonly keying: Keying;
  readonly sources: Sources;
  readonly size: number;
  readonly sticky: boolean;
  readonly masquerade: MasqueradeOf;
}

/** A pick in the form that groups of frontends use. */
export interface PickTarget {
  readonly chain: string;
  readonly verdict: { readonly goto: string };
  /** The map of endpoints. */
  readonly map: string;
  readonly needs: Fragment;
}

const prefixOf = (keying: Keying) => (keying === 'port' ? 'nodeport-' : '');
const sourcesPrefix = (sources: Sources) => (sources === 'any' ? '' : `${sources}-`);

/** Returns the map from frontends to chains: "services", "services-external", "nodeports", … */
export function frontendMap(keying: Keying, sources: Sources): string {
  const name = keying === 'port' ? 'nodeports' : 'services';
  return sources === 'any' ? name : `${name}-${sources}`;
}

/**
 * Returns the map from frontends and slots to endpoints: "endpoints-8", "nodeport-endpoints-external-3", …
 */
export function endpointMap({ keying, sources, size }: Pick): string {
  return `${prefixOf(keying)}endpoints-${sourcesPrefix(sources)}${size}`;
}

/** Returns "pick-8", "masq-nonpod-sticky-pick-8", "masq-all-nodeport-pick-3", … */
export function pickChain(pick: Pick): string {
  const masq = pick.masquerade === 'none' ? '' : `masq-${pick.masquerade}-`;
  return `${masq}${pick.sticky ? 'sticky-' : ''}${prefixOf(pick.keying)}pick-${sourcesPrefix(pick.sources)}${pick.size}`;
}

/** The map from clients to their last endpoint. */
export const AFFINITY = 'affinity';
/** The number of random draws before the one that cannot miss. */
const DRAWS = 3;

/** Sets the mark of packets to masquerade, and clears it. */
export function masqueradeMark({ masqueradeBit }: NodeView): { mark: Statement; unmark: Statement } {
  const bit = 1 << masqueradeBit;
  return { mark: setMark(~bit, bit), unmark: setMark(~bit, 0) };
}

/** Returns the chains and the map of each pick, the same object for the same pick. */
export function createPicks(rules: ServiceRules, node: NodeView): (pick: Pick) => PickTarget {
  const known = new Map<number, PickTarget>();
  const { mark } = masqueradeMark(node);

  return (pick) => {
    const id = pickNumber(pick);
    const found = known.get(id);
    if (found) return found;
    const chain = pickChain(pick);
    const map = endpointMap(pick);
    const target: PickTarget = {
      chain,
      verdict: { goto: chain },
      map,
      needs: {
        chains: chainsOf(pick),
        sets: [
          {
            name: map,
            key: [...rules.types(pick.keying), DATA_TYPE.mark],
            data: [rules.address, DATA_TYPE.port],
            removal: 'deferred',
          },
        ],
        rules: [],
      },
    };
    known.set(id, target);
    return target;
  };

  /** Returns the chains of a pick, referenced ones first. */
  function chainsOf(pick: Pick): ChainSpec[] {
    const name = pickChain(pick);
    if (pick.masquerade !== 'none') {
      const plain: Pick = { ...pick, masquerade: 'none' };
      const condition = pick.masquerade === 'nonpod' ? rules.notFromPod : [];
      return [...chainsOf(plain), { name, rules: [[...condition, mark], [goto(pickChain(plain))]] }];
    }
    const key = rules.key(pick.keying);
    if (pick.sticky) {
      const plain = { ...pick, sticky: false };
      const again = dnatTo(AFFINITY, rules.source, rules.destination, 'meta.l4proto', 'th.dport');
      return [...chainsOf(plain), { name, rules: [[again], [goto(pickChain(plain))]] }];
    }
    const draw = (below: number) => [dnatTo(endpointMap(pick), ...key, { random: below })];
    const below = classBefore(pick.size);
    const draws =
      below === pick.size - 1
        ? [draw(pick.size)]
        : [...Array.from({ length: DRAWS }, () => draw(pick.size)), draw(below)];
    // A packet that passes during a change and misses the map is dropped: untranslated, it would create a connection
    // tracking entry that prevents the translation of its flow.
    return [{ name, rules: [...draws, [drop]] }];
  }
}

const MASQUERADES: readonly MasqueradeOf[] = ['none', 'nonpod', 'all'];

/** Returns a unique number of a pick: a cold start looks up tens of thousands. */
function pickNumber({ keying, sources, size, sticky, masquerade }: Pick): number {
  const kind = ALL_SOURCES.indexOf(sources) * 3 + MASQUERADES.indexOf(masquerade);
  return size * 64 + kind * 4 + (keying === 'port' ? 2 : 0) + (sticky ? 1 : 0);
}

import type { ElementVerdict, NftBatch } from '../../kernel/nftables/batch.ts';
import { TABLE_FLAG } from '../../kernel/nftables/constants.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { Frontend, FrontendKey, NodeView } from '../../service/model.ts';
import { commentOf, keyingOf } from '../nftables/entries.ts';
import type { ChainDefinition, Keying, Scope } from '../nftables/layout.ts';
import type { Elements } from '../nftables/verify.ts';
import {
  addressWords,
  be16Port,
  bytesOf,
  hexOf,
  mergedRanges,
  outermost,
  PROTOCOL_NUMBER,
  successor,
  wordsOf,
  writeAddress,
} from '../nftables/words.ts';
import type { FrontendPlan, Order } from './frontend-plan.ts';
import { createLayout, type Layout, markMap, orderMap, steerChain, TABLE } from './layout.ts';
import type { MarkScheme } from './marks.ts';

/** What one map says of a frontend: for all sources, or for a class that is an exception. */
export interface Entry {
  readonly scope: Scope;
  readonly verdict: ElementVerdict;
  /** Null unless the packet is steered. */
  readonly mark: number | null;
}

interface FrontendState {
  readonly frontend: Frontend;
  readonly head: Uint32Array;
  readonly entries: readonly Entry[];
}

/**
 * The rules around IPVS of one family as they are in the kernel, and the transactions that change them. When the
 * kernel refuses a transaction, the object is of no more use.
 */
export class SteeringTable {
  readonly family: IPFamily;
  readonly layout: Layout;
  readonly #node: NodeView;
  readonly #words: 1 | 4;
  readonly #frontends = new Map<FrontendKey, FrontendState>();
  readonly #hairpin = new Set<string>();
  readonly #addresses = new Set<string>();

  constructor(family: IPFamily, node: NodeView, marks: MarkScheme) {
    this.family = family;
    this.#node = node;
    this.#words = addressWords(family);
    this.layout = createLayout(family, node, marks);
  }

  get chains(): ReadonlyMap<string, ChainDefinition> {
    return new Map(this.layout.chains.map((chain) => [chain.name, chain]));
  }

  /** The table with its rules, and no Services yet. `replace`: there is one now, which this one takes the place of. */
  create(batch: NftBatch, options: { owned: boolean; replace: boolean }): void {
    if (options.replace) batch.deleteTable(TABLE);
    batch.addTable(TABLE, options.owned ? TABLE_FLAG.owner | TABLE_FLAG.persist : 0);
    for (const set of this.layout.sets) batch.addSet(TABLE, set);
    for (const { name, base } of this.layout.chains) batch.addChain(TABLE, name, base);
    for (const { name, rules } of this.layout.chains) {
      for (const rule of rules) batch.addRule(TABLE, name, rule);
    }
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        batch.addElement(TABLE, set, { key: wordsOf(first) });
        const end = successor(last);
        if (end) batch.addElement(TABLE, set, { key: wordsOf(end), intervalEnd: true });
      }
    }
    for (const ip of new Set(this.#node.ownServiceAddresses)) {
      if (this.isOurs(ip)) batch.addElement(TABLE, 'own-addresses', { key: this.#address(ip) });
    }
  }

  /** All Services once more, into a table that is made anew. */
  refill(batch: NftBatch): void {
    for (const state of this.#frontends.values()) {
      this.#replaceEntries(batch, null, state);
      this.#replaceRanges(batch, null, state);
    }
    for (const ip of this.#addresses) batch.addElement(TABLE, 'addresses', { key: this.#address(ip) });
    for (const ip of this.#hairpin) {
      const key = [...this.#address(ip), ...this.#address(ip)];
      batch.addElement(TABLE, 'hairpin', { key });
    }
  }

  /** Adds a frontend, or changes it to what the plan says. Throws, with nothing written, when it cannot be encoded. */
  setFrontend(batch: NftBatch, plan: FrontendPlan): void {
    const { frontend } = plan;
    const head = this.#head(frontend);
    const next: FrontendState = { frontend, head, entries: entriesOf(plan, this.layout.hasPods) };
    const before = this.#frontends.get(frontend.key) ?? null;
    this.#frontends.set(frontend.key, next);
    this.#replaceEntries(batch, before, next);
    this.#replaceRanges(batch, before, next);
  }

  deleteFrontend(batch: NftBatch, key: FrontendKey): void {
    const before = this.#frontends.get(key);
    if (!before) return;
    this.#frontends.delete(key);
    this.#replaceEntries(batch, before, null);
    this.#replaceRanges(batch, before, null);
  }

  /** Whether an address stands on our interface, where only Services' ports answer. */
  setAddress(batch: NftBatch, ip: string, on: boolean): void {
    this.#toggle(batch, 'addresses', this.#addresses, ip, on, this.#address(ip));
  }

  setHairpin(batch: NftBatch, ip: string, on: boolean): void {
    const words = this.#address(ip);
    this.#toggle(batch, 'hairpin', this.#hairpin, ip, on, [...words, ...words]);
  }

  isOurs(address: string): boolean {
    return address.includes(':') === (this.family === 'ipv6');
  }

  entries(key: FrontendKey): readonly Entry[] {
    return this.#frontends.get(key)?.entries ?? [];
  }

  /** All elements that the kernel must have, by set. */
  expected(): Elements {
    const sets: Elements = new Map(this.layout.sets.map(({ name }) => [name, new Map()]));
    const put = (set: string, key: ArrayLike<number>, value: string) =>
      sets.get(set)?.set(hexOf(bytesOf(key)), value);
    for (const { frontend, head, entries } of this.#frontends.values()) {
      const keying = keyingOf(frontend);
      for (const { scope, verdict, mark } of entries) {
        put(orderMap(keying, scope), head, verdictText(verdict));
        if (mark !== null) put(markMap(keying, scope), head, hexOf(bytesOf([mark])));
      }
      if (frontend.allowedSources) put('restricted', head, '');
      for (const { first, last } of outermost(frontend.allowedSources ?? [], this.family)) {
        put('allowed-sources', [...head, ...wordsOf(first)], hexOf(bytesOf([...head, ...wordsOf(last)])));
      }
    }
    for (const ip of this.#addresses) put('addresses', this.#address(ip), '');
    for (const ip of this.#hairpin) put('hairpin', [...this.#address(ip), ...this.#address(ip)], '');
    for (const ip of this.#node.ownServiceAddresses) {
      if (this.isOurs(ip)) put('own-addresses', this.#address(ip), '');
    }
    for (const [set, ranges] of this.#networks()) {
      for (const { first, last } of ranges) {
        put(set, wordsOf(first), 'start');
        const end = successor(last);
        if (end) put(set, wordsOf(end), 'end');
      }
    }
    return sets;
  }

  /** Which slots the marks of a table in the kernel belonged to: element key (hex) of a frontend's maps. */
  headHex(frontend: Frontend): string {
    return hexOf(bytesOf(this.#head(frontend)));
  }

  #networks() {
    const { serviceCidrs, nodePortAddresses } = this.#node;
    const ports = nodePortAddresses[this.family];
    return [
      ['service-networks', mergedRanges(serviceCidrs, this.family)],
      ['nodeport-networks', mergedRanges(ports.all ? [] : ports.cidrs, this.family)],
    ] as const;
  }

  #address(ip: string): Uint32Array {
    const words = new Uint32Array(this.#words);
    writeAddress(ip, this.family, words, 0);
    return words;
  }

  #head(frontend: Frontend): Uint32Array {
    const words = frontend.address === null ? 0 : this.#words;
    const head = new Uint32Array(words + 2);
    if (frontend.address !== null) writeAddress(frontend.address, this.family, head, 0);
    head[words] = PROTOCOL_NUMBER[frontend.protocol];
    head[words + 1] = be16Port(frontend.port);
    return head;
  }

  #toggle(
    batch: NftBatch,
    set: string,
    known: Set<string>,
    ip: string,
    on: boolean,
    key: ArrayLike<number>,
  ): void {
    if (known.has(ip) === on) return;
    if (on) {
      known.add(ip);
      batch.addElement(TABLE, set, { key });
    } else {
      known.delete(ip);
      batch.deleteElement(TABLE, set, { key });
    }
  }

  #replaceEntries(batch: NftBatch, before: FrontendState | null, next: FrontendState | null): void {
    const state = next ?? before;
    if (!state) return;
    const keying: Keying = keyingOf(state.frontend);
    const key = state.head;
    const old = new Map(before?.entries.map((entry) => [entry.scope, entry]));
    const oldComment = before && commentOf(before.frontend);
    const comment = commentOf(state.frontend);
    for (const entry of next?.entries ?? []) {
      const was = old.get(entry.scope) ?? null;
      old.delete(entry.scope);
      if (was?.mark !== entry.mark) {
        if (was && was.mark !== null) batch.deleteElement(TABLE, markMap(keying, entry.scope), { key });
        if (entry.mark !== null) {
          batch.addElement(TABLE, markMap(keying, entry.scope), { key, data: [entry.mark], comment });
        }
      }
      if (was && verdictText(was.verdict) === verdictText(entry.verdict) && oldComment === comment) continue;
      if (was) batch.deleteElement(TABLE, orderMap(keying, entry.scope), { key });
      batch.addElement(TABLE, orderMap(keying, entry.scope), { key, verdict: entry.verdict, comment });
    }
    for (const { scope, mark } of old.values()) {
      batch.deleteElement(TABLE, orderMap(keying, scope), { key });
      if (mark !== null) batch.deleteElement(TABLE, markMap(keying, scope), { key });
    }
  }

  #replaceRanges(batch: NftBatch, before: FrontendState | null, next: FrontendState | null): void {
    const head = (next ?? before)?.head;
    if (!head) return;
    const elements = (state: FrontendState | null) =>
      new Map(
        outermost(state?.frontend.allowedSources ?? [], this.family).map(({ first, last }) => [
          `${hexOf(first)}-${hexOf(last)}`,
          { key: [...head, ...wordsOf(first)], keyEnd: [...head, ...wordsOf(last)] },
        ]),
      );
    const old = elements(before);
    const fresh = elements(next);
    for (const [range, element] of old)
      if (!fresh.has(range)) batch.deleteElement(TABLE, 'allowed-sources', element);
    for (const [range, element] of fresh)
      if (!old.has(range)) batch.addElement(TABLE, 'allowed-sources', element);
    const was = (before?.frontend.allowedSources ?? null) !== null;
    const is = (next?.frontend.allowedSources ?? null) !== null;
    if (is && !was) batch.addElement(TABLE, 'restricted', { key: head });
    if (was && !is) batch.deleteElement(TABLE, 'restricted', { key: head });
  }
}

/**
 * The node's own order holds for everybody whose order does not differ from it by more than that pods alone are not
 * masqueraded; exceptions stand in maps that their class looks into first.
 */
function entriesOf({ frontend, orders }: FrontendPlan, hasPods: boolean): Entry[] {
  const keying = keyingOf(frontend);
  const { node, pod, external } = orders;
  const onlyNonpods = hasPods && node.action === 'masquerade' && pod.action === 'pass';
  const entry = (scope: Scope, order: Order): Entry => ({
    scope,
    verdict: verdictOf(order, keying, scope),
    mark: order.action === 'steer' ? order.mark : null,
  });
  const any = onlyNonpods
    ? { scope: 'any' as const, verdict: { goto: 'masquerade-nonpod' }, mark: null }
    : entry('any', node);
  return [
    any,
    ...(hasPods && !onlyNonpods && !sameOrder(node, pod) ? [entry('pod', pod)] : []),
    ...(sameOrder(node, external) ? [] : [entry('external', external)]),
  ];
}

function verdictOf(order: Order, keying: Keying, scope: Scope): ElementVerdict {
  switch (order.action) {
    case 'pass':
      return 'accept';
    case 'masquerade':
      return { goto: 'masquerade' };
    case 'steer':
      return { goto: steerChain(keying, scope) };
    case 'reject':
      return { goto: 'refuse' };
    case 'drop':
      return { goto: 'lose' };
  }
}

function sameOrder(a: Order, b: Order): boolean {
  return a.action === b.action && (a.action !== 'steer' || b.action !== 'steer' || a.mark === b.mark);
}

export function verdictText(verdict: ElementVerdict): string {
  return typeof verdict === 'string' ? verdict : `goto ${verdict.goto}`;
}

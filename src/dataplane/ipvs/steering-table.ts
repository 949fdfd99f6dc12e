import type { ElementVerdict, NftBatch, SetDefinition } from '../../kernel/nftables/batch.ts';
import { TABLE_FLAG } from '../../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { familyOf, type IPFamily } from '../../lib/address.ts';
import { addressWords, be16Port, bytesOf, hexOf, wordsOf, writeAddress } from '../../nft/encoding.ts';
import { mergedRanges, outermost, successor } from '../../nft/ranges.ts';
import {
  type Endpoint,
  type Frontend,
  type FrontendKey,
  type NodeView,
  SOURCE_CLASSES,
  type SourceClass,
} from '../../service/model.ts';
import type { Keying } from '../nf-matches.ts';
import type { ChainDefinition, Elements } from '../nf-table.ts';
import { commentOf, keyingOf } from '../nftables/entries.ts';
import {
  createLayout as createPickLayout,
  endpointMap,
  type Pick,
  pickChain,
  type Scope,
} from '../nftables/layout.ts';
import { sizeClass } from '../nftables/size-class.ts';
import { ALIAS, type FrontendPlan, type Order } from './frontend-plan.ts';
import {
  createLayout,
  type Layout,
  LOCALHOST_MAP,
  markMap,
  orderMap,
  redirectMap,
  steerChain,
  TABLE,
} from './layout.ts';
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
  /** Ports of the alias address, by class, and whether what comes there is masqueraded. */
  readonly redirects: ReadonlyMap<SourceClass, { readonly port: number; readonly masquerade: boolean }>;
  /** A node port on loopback addresses. */
  readonly localhost: Localhost | null;
}

interface Localhost {
  readonly verdict: ElementVerdict;
  readonly pick: Pick | null;
  readonly endpoints: readonly Endpoint[];
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
  /** Chains and maps of what is on loopback addresses, made when they are needed. */
  readonly #pickChains = new Map<string, ChainDefinition>();
  readonly #pickMaps = new Map<string, SetDefinition>();
  readonly #picks: ReturnType<typeof createPickLayout>;

  constructor(family: IPFamily, node: NodeView, marks: MarkScheme) {
    this.family = family;
    this.#node = node;
    this.#words = addressWords(family);
    this.layout = createLayout(family, node, marks);
    this.#picks = createPickLayout(family, node);
  }

  get chains(): ReadonlyMap<string, ChainDefinition> {
    return new Map([...this.layout.chains.map((chain) => [chain.name, chain] as const), ...this.#pickChains]);
  }

  /** The table with its rules, and no Services yet. `replace`: there is one now, which this one takes the place of. */
  create(batch: NftBatch, options: { owned: boolean; replace: boolean }): void {
    if (options.replace) batch.deleteTable(TABLE);
    batch.addTable(TABLE, options.owned ? TABLE_FLAG.owner | TABLE_FLAG.persist : 0);
    for (const set of [...this.layout.sets, ...this.#pickMaps.values()]) batch.addSet(TABLE, set);
    for (const { name, base } of this.chains.values()) batch.addChain(TABLE, name, base);
    for (const { name, rules } of this.chains.values()) {
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
    for (const state of this.#frontends.values()) this.#replace(batch, null, state);
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
    const next: FrontendState = {
      frontend,
      head,
      entries: entriesOf(plan, this.layout.hasPods),
      redirects: redirectsOf(plan, this.layout.hasPods),
      localhost: this.#node.localhostNodePorts ? localhostOf(frontend) : null,
    };
    const before = this.#frontends.get(frontend.key) ?? null;
    this.#frontends.set(frontend.key, next);
    this.#replace(batch, before, next);
  }

  deleteFrontend(batch: NftBatch, key: FrontendKey): void {
    const before = this.#frontends.get(key);
    if (!before) return;
    this.#frontends.delete(key);
    this.#replace(batch, before, null);
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
    return familyOf(address) === this.family;
  }

  entries(key: FrontendKey): readonly Entry[] {
    return this.#frontends.get(key)?.entries ?? [];
  }

  /** All elements that the kernel must have, by set. */
  expected(): Elements {
    const names = [...this.layout.sets.map(({ name }) => name), ...this.#pickMaps.keys()];
    const sets: Elements = new Map(names.map((name) => [name, new Map()]));
    const put = (set: string, key: ArrayLike<number>, value: string) =>
      sets.get(set)?.set(hexOf(bytesOf(key)), value);
    for (const { frontend, head, entries, redirects, localhost } of this.#frontends.values()) {
      const keying = keyingOf(frontend);
      for (const [source, { port, masquerade }] of redirects) {
        put(redirectMap(keying, source), head, hexOf(bytesOf(this.#aliasData(port))));
        put(
          orderMap('address', 'any'),
          this.#aliasHead(frontend, port),
          verdictText(aliasVerdict(masquerade)),
        );
      }
      if (localhost) {
        put(LOCALHOST_MAP, head, verdictText(localhost.verdict));
        for (const [slot, endpoint] of localhost.endpoints.entries()) {
          if (!localhost.pick) break;
          put(endpointMap(localhost.pick), [...head, slot], hexOf(bytesOf(this.#endpoint(endpoint))));
        }
      }
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

  #aliasHead({ protocol }: Frontend, port: number): Uint32Array {
    return Uint32Array.from([
      ...this.#address(ALIAS[this.family]),
      PROTOCOL_NUMBER[protocol],
      be16Port(port),
    ]);
  }

  #aliasData(port: number): number[] {
    return [...this.#address(ALIAS[this.family]), be16Port(port)];
  }

  #endpoint({ ip, port }: Endpoint): number[] {
    return [...this.#address(ip), be16Port(port)];
  }

  #replace(batch: NftBatch, before: FrontendState | null, next: FrontendState | null): void {
    this.#replaceRanges(batch, before, next);
    this.#replaceEntries(batch, before, next);
    this.#replaceRedirects(batch, before, next);
    this.#replaceLocalhost(batch, before, next);
  }

  #replaceRedirects(batch: NftBatch, before: FrontendState | null, next: FrontendState | null): void {
    const state = next ?? before;
    if (!state || (!before?.redirects.size && !next?.redirects.size)) return;
    const keying = keyingOf(state.frontend);
    const { head: key } = state;
    const comment = commentOf(state.frontend);
    const aliases = (of: FrontendState | null) =>
      new Map([...(of?.redirects.values() ?? [])].map(({ port, masquerade }) => [port, masquerade]));
    const old = aliases(before);
    const fresh = aliases(next);
    for (const port of old.keys()) {
      if (fresh.has(port)) continue;
      batch.deleteElement(TABLE, orderMap('address', 'any'), { key: this.#aliasHead(state.frontend, port) });
    }
    for (const [port, masquerade] of fresh) {
      if (old.has(port)) continue;
      const alias = this.#aliasHead(state.frontend, port);
      const verdict = aliasVerdict(masquerade);
      batch.addElement(TABLE, orderMap('address', 'any'), { key: alias, verdict, comment });
    }
    for (const source of SOURCE_CLASSES) {
      const was = before?.redirects.get(source)?.port;
      const is = next?.redirects.get(source)?.port;
      if (was === is) continue;
      if (was !== undefined) batch.deleteElement(TABLE, redirectMap(keying, source), { key });
      if (is === undefined) continue;
      batch.addElement(TABLE, redirectMap(keying, source), { key, data: this.#aliasData(is), comment });
    }
  }

  #replaceLocalhost(batch: NftBatch, before: FrontendState | null, next: FrontendState | null): void {
    const [was, is] = [before?.localhost ?? null, next?.localhost ?? null];
    const key = (next ?? before)?.head;
    if (!key || (!was && !is)) return;
    if (is?.pick) this.#ensurePick(batch, is.pick);
    if (was && is && sameLocalhost(was, is)) return;
    const slot = (n: number) => [...key, n];
    for (const n of was?.pick ? was.endpoints.keys() : []) {
      if (was?.pick) batch.deleteElement(TABLE, endpointMap(was.pick), { key: slot(n) });
    }
    for (const [n, endpoint] of is?.pick ? is.endpoints.entries() : []) {
      if (!is?.pick) break;
      batch.addElement(TABLE, endpointMap(is.pick), { key: slot(n), data: this.#endpoint(endpoint) });
    }
    if (was && is && verdictText(was.verdict) === verdictText(is.verdict)) return;
    if (was) batch.deleteElement(TABLE, LOCALHOST_MAP, { key });
    if (is && next) {
      batch.addElement(TABLE, LOCALHOST_MAP, { key, verdict: is.verdict, comment: commentOf(next.frontend) });
    }
  }

  #ensurePick(batch: NftBatch, pick: Pick): void {
    if (this.#pickChains.has(pickChain(pick))) return;
    const map = endpointMap(pick);
    if (!this.#pickMaps.has(map)) {
      const definition = { name: map, key: this.#picks.key(pick.keying, true), data: this.#picks.endpoint };
      this.#pickMaps.set(map, definition);
      batch.addSet(TABLE, definition);
    }
    for (const chain of this.#picks.pickChains(pick)) {
      if (this.#pickChains.has(chain.name)) continue;
      this.#pickChains.set(chain.name, chain);
      batch.addChain(TABLE, chain.name);
      for (const rule of chain.rules) batch.addRule(TABLE, chain.name, rule);
    }
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

/** Where which class is redirected. Pods that cannot be told from others are external. */
function redirectsOf({ orders }: FrontendPlan, hasPods: boolean): FrontendState['redirects'] {
  const redirects = new Map<SourceClass, { port: number; masquerade: boolean }>();
  for (const source of SOURCE_CLASSES) {
    const order = orders[source];
    if (order.action !== 'redirect' || (source === 'pod' && !hasPods)) continue;
    redirects.set(source, { port: order.port, masquerade: order.masquerade });
  }
  return redirects;
}

/** On loopback addresses the client is always the same: with affinity, so is the endpoint. */
function localhostOf(frontend: Frontend): Localhost | null {
  if (frontend.address !== null) return null;
  const route = frontend.routes.node;
  if (route.action !== 'forward') {
    return { verdict: { goto: route.action === 'drop' ? 'lose' : 'refuse' }, pick: null, endpoints: [] };
  }
  const all = route.pool.endpoints;
  const endpoints = frontend.affinitySeconds === null ? all : all.slice(0, 1);
  const pick: Pick = {
    keying: 'port',
    scope: 'any',
    size: sizeClass(endpoints.length),
    sticky: false,
    masquerade: 'all',
  };
  return { verdict: { goto: pickChain(pick) }, pick, endpoints };
}

const sameLocalhost = (a: Localhost, b: Localhost): boolean =>
  verdictText(a.verdict) === verdictText(b.verdict) &&
  a.endpoints.length === b.endpoints.length &&
  a.endpoints.every(({ ip, port }, i) => ip === b.endpoints[i]?.ip && port === b.endpoints[i]?.port);

const aliasVerdict = (masquerade: boolean): ElementVerdict =>
  masquerade ? { goto: 'masquerade' } : 'accept';

function verdictOf(order: Order, keying: Keying, scope: Scope): ElementVerdict {
  switch (order.action) {
    case 'pass':
    case 'redirect':
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

/** What is redirected comes back with another destination: here it passes. */
function sameOrder(a: Order, b: Order): boolean {
  const passes = ({ action }: Order) => action === 'pass' || action === 'redirect';
  if (passes(a) && passes(b)) return true;
  return a.action === b.action && (a.action !== 'steer' || b.action !== 'steer' || a.mark === b.mark);
}

export function verdictText(verdict: ElementVerdict): string {
  return typeof verdict === 'string' ? verdict : `goto ${verdict.goto}`;
}

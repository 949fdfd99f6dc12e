import { canonicalAddress, cidrContains, familyOf, parseCidr } from '../../../lib/address.ts';
import type { Packet } from '../../../service/model.ts';
import { HOOKS } from '../base-chains.ts';
import type { Table } from '../chain-names.ts';
import type { Rule } from '../rule.ts';

export type Tables = Readonly<Record<Table, ReadonlyMap<string, readonly Rule[]>>>;

/** A possible outcome for a packet, and its probability. */
export interface Outcome {
  readonly odds: number;
  readonly action: 'forward' | 'reject' | 'drop' | 'pass';
  /** "address:port" after translation; null untranslated. */
  readonly target: string | null;
  readonly masquerade: boolean;
}

interface State {
  readonly odds: number;
  readonly target: string | null;
  /** Null while a translated packet passes table filter, whose rules are for untranslated ones. */
  readonly destination: string | null;
  readonly mark: boolean;
  readonly end: 'accept' | 'drop' | 'reject' | 'masquerade' | 'return' | null;
}

/**
 * Walks a flow's first packet through rules as the kernel would, following every outcome of random matches.
 */
export function interpret(tables: Tables, packet: Packet, destinationIsLocal: boolean): Outcome[] {
  const node = packet.sourceClass === 'node';
  const start: State = { odds: 1, target: null, destination: packet.destination, mark: false, end: null };
  const afterNat = hook('nat', node ? 'OUTPUT' : 'PREROUTING', start);
  return afterNat.flatMap((state) => {
    const stays = destinationIsLocal && state.target === null;
    const chains = node ? (stays ? ['OUTPUT', 'INPUT'] : ['OUTPUT']) : [stays ? 'INPUT' : 'FORWARD'];
    let states: State[] = [{ ...state, end: null }];
    for (const chain of chains) {
      states = states.flatMap((s) =>
        s.end === 'drop' || s.end === 'reject' ? [s] : hook('filter', chain, { ...s, end: null }),
      );
    }
    return states.flatMap((s): Outcome[] => {
      const { target } = s;
      if (s.end === 'drop' || s.end === 'reject' || target === null) {
        const action = s.end === 'drop' || s.end === 'reject' ? s.end : 'pass';
        return [{ odds: s.odds, action, target, masquerade: s.mark }];
      }
      const sent = hook('nat', 'POSTROUTING', { ...s, destination: hostOf(target), end: null });
      return sent.map(({ odds, end }) => ({
        odds,
        action: 'forward',
        target,
        masquerade: end === 'masquerade',
      }));
    });
  });

  function hook(table: Table, chain: string, state: State): State[] {
    const rules = HOOKS.filter((h) => h.table === table && h.chain === chain).map((h) => h.rule);
    return run(table, rules, state);
  }

  function run(table: Table, rules: readonly Rule[], state: State): State[] {
    const done: State[] = [];
    let open = [state];
    for (const line of rules) {
      const next: State[] = [];
      for (const current of open) {
        const chance = matches(line, current);
        if (chance < 1) next.push({ ...current, odds: current.odds * (1 - chance) });
        if (chance === 0) continue;
        const [, kind = '', target = ''] = /-([jg]) (\S+)/.exec(line) ?? [];
        const taken = { ...current, odds: current.odds * chance };
        for (const after of execute(table, line, kind, target, taken)) {
          if (after.end === null) next.push(after);
          else done.push(after);
        }
      }
      open = next;
    }
    return [...done, ...open];
  }

  function execute(table: Table, line: Rule, kind: string, target: string, state: State): State[] {
    switch (target) {
      case 'ACCEPT':
        return [{ ...state, end: 'accept' }];
      case 'DROP':
        return [{ ...state, end: 'drop' }];
      case 'REJECT':
        return [{ ...state, end: 'reject' }];
      case 'RETURN':
        return [{ ...state, end: 'return' }];
      case 'MARK':
        return [{ ...state, mark: !line.endsWith('/0x0') }];
      case 'MASQUERADE':
        return [{ ...state, end: 'masquerade' }];
      case 'SET':
        return [state];
      case 'DNAT':
        return [
          {
            ...state,
            target: /--to-destination (\S+)/.exec(line)?.[1] ?? null,
            destination: null,
            end: 'accept',
          },
        ];
      default: {
        const rules = tables[table].get(target);
        if (!rules) throw new Error(`${line} leads to ${target}, which does not exist`);
        // After a goto the rest of the calling chain is skipped, as if the chain had returned.
        return run(table, rules, state).map((after) =>
          after.end === 'return' || after.end === null
            ? { ...after, end: kind === 'g' ? ('return' as const) : null }
            : after,
        );
      }
    }
  }

  /** Returns 1, 0, or the probability of a random match. */
  function matches(line: Rule, state: State): number {
    const text = line.replace(/--comment "[^"]*"/, '');
    const checks: [RegExp, (value: string) => boolean][] = [
      [/(!? ?)-s (\S+)/, (value) => inNetwork(value, packet.source)],
      [/(!? ?)-d (\S+)/, (value) => state.destination !== null && inNetwork(value, state.destination)],
      [/(!? ?)-i (\S+)/, () => packet.sourceClass === 'pod'],
      [/(!? ?)-p (\S+)/, (value) => value.toUpperCase() === packet.protocol],
      [/(!? ?)--dport (\S+)/, (value) => inRange(value, packet.port)],
      [/(!? ?)--src-type (\S+)/, () => packet.sourceClass === 'node'],
      [/(!? ?)--dst-type (\S+)/, () => destinationIsLocal && state.target === null],
      [
        /(!? ?)--ctstate (\S+)/,
        (value) => value.includes('NEW') || (value.includes('DNAT') && state.target !== null),
      ],
      [/(!? ?)--match-set (\S+)/, () => false],
      [/(!? ?)--mark (\S+)/, () => state.mark],
    ];
    for (const [pattern, holds] of checks) {
      const [, not = '', value = ''] = pattern.exec(text) ?? [];
      if (value !== '' && holds(value) === not.startsWith('!')) return 0;
    }
    return Number(/--probability (\S+)/.exec(text)?.[1] ?? 1);
  }
}

/** Returns the address in "10.0.0.1:80" or "[fd00::1]:80". */
const hostOf = (target: string): string => target.replace(/:\d+$/, '').replace(/[[\]]/g, '');

function inNetwork(text: string, address: string): boolean {
  const cidr = parseCidr(text);
  const canonical = canonicalAddress(address);
  return (
    cidr !== null &&
    canonical !== null &&
    familyOf(canonical) === cidr.family &&
    cidrContains(cidr, canonical)
  );
}

function inRange(text: string, port: number): boolean {
  const [low = 0, high = low] = text.split(':').map(Number);
  return port >= low && port <= high;
}

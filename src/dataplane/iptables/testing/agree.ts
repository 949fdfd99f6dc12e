import assert from 'node:assert/strict';
import { hostPort } from '../../../lib/address.ts';
import { decide } from '../../../service/decide.ts';
import type { Packet, ServiceMap } from '../../../service/model.ts';
import { isForNode } from '../../testing/packet-class.ts';
import { interpret, type Outcome, type Tables } from './interpreter.ts';

/** Asserts that the oracle and the rules treat a packet alike. */
export function agree(map: ServiceMap, packet: Packet, tables: Tables): void {
  const verdict = decide(map, packet);
  // The kernel itself drops such IPv6 packets, and IPv4 packets if `route_localnet` is off.
  if (verdict.reason === 'martian') return;
  const expected = new Map<string, number>();
  for (const { endpoint, odds, masquerade } of verdict.candidates) {
    add(expected, `forward ${hostPort(endpoint)} ${masquerade ? 'masqueraded' : ''}`, odds);
  }
  if (verdict.action !== 'forward') add(expected, verdict.action, 1);
  const seen = new Map<string, number>();
  for (const outcome of interpret(tables, packet, isForNode(packet, map)))
    add(seen, nameOf(outcome), outcome.odds);
  const context = `${JSON.stringify(packet)} ${verdict.reason} ${verdict.frontend?.key} ${JSON.stringify([...seen])}`;
  assert.deepEqual([...seen.keys()].sort(), [...expected.keys()].sort(), context);
  for (const [name, odds] of expected) assert.ok(Math.abs((seen.get(name) ?? 0) - odds) < 1e-6, context);
}

const nameOf = ({ action, target, masquerade }: Outcome): string =>
  action === 'forward' ? `forward ${target} ${masquerade ? 'masqueraded' : ''}` : action;

function add(counts: Map<string, number>, name: string, odds: number): void {
  if (odds > 1e-9) counts.set(name, (counts.get(name) ?? 0) + odds);
}

import assert from 'node:assert/strict';
import { cidrContains, familyOf, parseCidr } from '../../../lib/address.ts';
import { decide } from '../../../service/decide.ts';
import type { Packet, ServiceMap } from '../../../service/model.ts';
import { hostPort } from '../chain-names.ts';
import { interpret, type Outcome, type Tables } from './interpreter.ts';

/** Packets whose class is the one that rules can tell from them. */
export function consistent(packet: Packet, map: ServiceMap): boolean {
  const family = familyOf(packet.source);
  if (family === null || family !== familyOf(packet.destination)) return false;
  const detection = map.node.localDetection;
  if (!('ipv4' in detection)) return true;
  const cidr = detection[family];
  return (cidr !== null && cidrContains(cidr, packet.source)) === (packet.sourceClass === 'pod');
}

function isLocal(packet: Packet, map: ServiceMap): boolean {
  const { destination } = packet;
  const loopback =
    destination === '::1' || cidrContains(parseCidr('127.0.0.0/8') ?? assert.fail(), destination);
  return (
    packet.destinationIsLocal ?? (loopback || destination === map.node.ipv4 || destination === map.node.ipv6)
  );
}

/** Asserts that the oracle and the rules do the same with a packet. */
export function agree(map: ServiceMap, packet: Packet, tables: Tables): void {
  const verdict = decide(map, packet);
  // The kernel itself drops IPv6's, and IPv4's where `route_localnet` is off.
  if (verdict.reason === 'martian') return;
  const expected = new Map<string, number>();
  for (const { endpoint, odds, masquerade } of verdict.candidates) {
    // Every endpoint that reaches itself is masqueraded here, also one of another node.
    const masked = masquerade || endpoint.ip === packet.source;
    add(expected, `forward ${hostPort(endpoint)} ${masked ? 'masqueraded' : ''}`, odds);
  }
  if (verdict.action !== 'forward') add(expected, verdict.action, 1);
  const seen = new Map<string, number>();
  for (const outcome of interpret(tables, packet, isLocal(packet, map)))
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

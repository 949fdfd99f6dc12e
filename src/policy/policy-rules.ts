import { DATA_TYPE } from '../kernel/nftables/constants.ts';
import { PROTOCOL_NUMBER } from '../kernel/protocol-numbers.ts';
import type { IPFamily } from '../lib/address.ts';
import {
  accept,
  addressFields,
  type Field,
  goto,
  inSet,
  is,
  type Rule,
  type Statement,
  typesOf,
} from '../nft/rule.ts';
import type { SetSpec } from '../nft/spec.ts';
import type { Direction, Policy, PolicyPeer, PolicyPort, PolicyRule } from './model.ts';
import { MAX_ADDRESSES_OF_NODE } from './name-limits.ts';
import { DENIED, deniedChain, nameSetOf, ruleName, UNMATCHED } from './policy-chain-names.ts';
import { portKey } from './policy-references.ts';
import { blocksOf, needsRangeSet, portBytes, ranges } from './rule-ports.ts';

/** The rules of policies in one family, and the sets that they match. */
export interface PolicyRules {
  groupSet(id: string): SetSpec;
  /** Returns the set of a group of names: pairs of a pod's address and an address that it got. */
  nameSet(id: string): SetSpec;
  portSet(port: string): SetSpec;
  blockSet(rule: string): SetSpec;
  rangeSet(rule: string): SetSpec;
  /** Returns the set by which packets that a policy denies are counted; null: those that no NetworkPolicy allows. */
  deniedSet(direction: Direction, policy: Policy | null): SetSpec;
  /** Counts a packet by the address of the isolated pod, and drops it. */
  countAndDrop(set: SetSpec, direction: Direction): Rule[];
  /** Returns the rules of a policy; `pass`: what follows a rule with the action Pass. */
  rulesOf(policy: Policy, direction: Direction, pass: Rule): Rule[];
  /** Returns the sets that a rule of this name matches. */
  setsOf(rule: PolicyRule, name: string): SetSpec[];
}

export function createPolicyRules(family: IPFamily): PolicyRules {
  const { source, destination } = addressFields(family);
  const key: readonly Field[] = [destination, 'meta.l4proto', 'th.dport'];
  const groupSet = (id: string): SetSpec => ({ name: `pods-${id}`, key: typesOf(source) });
  const nameSet = (id: string): SetSpec => ({
    name: nameSetOf(id),
    key: typesOf(source, destination),
    dynamic: true,
    size: MAX_ADDRESSES_OF_NODE,
  });
  const portSet = (port: string): SetSpec => ({ name: `port-${port}`, key: typesOf(...key) });
  const blockSet = (rule: string): SetSpec => ({
    name: `${rule}-blocks`,
    key: typesOf(source),
    interval: true,
  });
  const rangeSet = (rule: string): SetSpec => ({
    name: `${rule}-ports`,
    key: [DATA_TYPE.protocol, DATA_TYPE.port],
    interval: true,
  });

  const countAndDrop = ({ name }: SetSpec, direction: Direction): Rule[] => [
    [inSet(name, direction === 'ingress' ? destination : source), goto(DENIED[direction])],
    [goto(DENIED[direction])],
  ];
  const deniedSet = (direction: Direction, policy: Policy | null): SetSpec => ({
    name: policy ? deniedChain(policy, direction) : UNMATCHED[direction],
    key: typesOf(source),
    counted: true,
  });

  function rulesOf(policy: Policy, direction: Direction, pass: Rule): Rule[] {
    return (policy[direction] ?? []).flatMap((rule, i): Rule[] => {
      const name = ruleName(policy, direction, i);
      const peers = rule.peers ? peerMatches(rule.peers, direction, name) : [[]];
      const ports = rule.ports ? portMatches(rule.ports, name) : [[]];
      const end: Rule = {
        Accept: [acceptAt(direction)],
        Deny: [goto(deniedChain(policy, direction))],
        Pass: pass,
      }[rule.action];
      // Comparing a port is faster than looking up an address.
      return peers.flatMap((peer) => ports.map((port): Rule => [...port, ...peer, ...end]));
    });
  }

  function setsOf({ peers, ports }: PolicyRule, name: string): SetSpec[] {
    return [
      ...(peers ?? []).flatMap((peer) =>
        peer.kind === 'pods'
          ? [groupSet(peer.group.id)]
          : peer.kind === 'names'
            ? [nameSet(peer.group.id)]
            : [],
      ),
      ...(blocksOf(peers).length > 0 ? [blockSet(name)] : []),
      ...(ports && needsRangeSet(ports) ? [rangeSet(name)] : []),
      ...(ports ?? []).flatMap((port) =>
        port.kind === 'name' ? [portSet(portKey(port.name, port.protocol))] : [],
      ),
    ];
  }

  /** Returns alternatives for a packet's other end; one of them must match. */
  function peerMatches(peers: readonly PolicyPeer[], direction: Direction, name: string): Statement[][] {
    const field = direction === 'ingress' ? source : destination;
    const ids = new Set(peers.flatMap((peer) => (peer.kind === 'pods' ? [peer.group.id] : [])));
    const names = new Set(peers.flatMap((peer) => (peer.kind === 'names' ? [peer.group.id] : [])));
    return [
      ...[...names].map((id) => [inSet(nameSet(id).name, source, destination)]),
      ...[...ids].map((id) => [inSet(groupSet(id).name, field)]),
      ...(blocksOf(peers).length > 0 ? [[inSet(blockSet(name).name, field)]] : []),
    ];
  }

  function portMatches(ports: readonly PolicyPort[], name: string): Statement[][] {
    const names = new Set(
      ports.flatMap((port) => (port.kind === 'name' ? [portKey(port.name, port.protocol)] : [])),
    );
    const [first] = ranges(ports);
    return [
      ...(needsRangeSet(ports)
        ? [[inSet(rangeSet(name).name, 'meta.l4proto', 'th.dport')]]
        : first
          ? [[is('meta.l4proto', PROTOCOL_NUMBER[first.protocol]), is('th.dport', portBytes(first.first))]]
          : []),
      ...[...names].map((port) => [inSet(portSet(port).name, ...key)]),
    ];
  }

  return { groupSet, nameSet, portSet, blockSet, rangeSet, deniedSet, countAndDrop, rulesOf, setsOf };
}

/** A packet that a pod's own policies accept on its way out still has to pass those of its receiver. */
export const acceptAt = (direction: Direction): Statement =>
  direction === 'egress' ? goto('ingress') : accept;

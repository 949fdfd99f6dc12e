import { DATA_TYPE, type DataType } from '../../kernel/nftables/constants.ts';
import { PRIORITY } from '../../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import { type IPFamily, LOOPBACK } from '../../lib/address.ts';
import { maskOf } from '../../nft/ranges.ts';
import {
  addressFields,
  destinationIsLocal,
  deviceName,
  drop,
  type Field,
  goBack,
  goto,
  inSet,
  is,
  isNot,
  jump,
  masquerade,
  notInSet,
  type Rule,
  rejectPacket,
  resetTcp,
  type Statement,
  typesOf,
} from '../../nft/rule.ts';
import type { ChainSpec, SetSpec } from '../../nft/spec.ts';
import { podSource } from '../../service/classify.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import type { Keying } from './frontend-keys.ts';

/** The rules and sets of one family that all modes with nf_tables rules share. */
export interface ServiceRules {
  readonly family: IPFamily;
  readonly source: Field;
  readonly destination: Field;
  /** Type of an address. */
  readonly address: DataType;
  /** Whether packets of pods can be recognized. */
  readonly hasPods: boolean;
  /** The key of maps with this keying, as rules load it and as sets declare it. */
  key(keying: Keying): readonly Field[];
  types(keying: Keying): DataType[];
  /** Matches packets to a loopback address. */
  readonly toLoopback: Statement;
  /** Matches packets from other sources than pods. */
  readonly notFromPod: readonly Statement[];
  /** The source classes that the rules can tell apart. */
  readonly classes: readonly SourceClass[];
  /** Continues in a chain for packets of pods; no rule if pods cannot be recognized. */
  podsGoTo(chain: string): Rule[];
  /** Drops packets from outside a frontend's source ranges. */
  readonly restricted: Rule;
  /**
   * For modes that translate in hooks of type nat: where each of these hooks leads to, and the chains of a source class.
   * `look` looks up frontends; `loopback`: what the node's processes pass first on the way to node ports.
   */
  enter(from: 'external' | 'node'): Rule[];
  classChains(name: SourceClass, look: (keying: Keying) => Rule[], loopback: readonly Rule[]): ChainSpec[];
  /** Ends the lookup of node ports, with `verdict`, for destinations on which they do not answer. */
  notNodePorts(verdict: Statement): Rule[];
  /**
   * Masquerades packets that return to their own sender. Those of the node to itself stay on it, and need no masquerading: an
   * endpoint in the host network would make its node's own connections come from an address of `lo`.
   */
  readonly hairpin: Rule;
  /** Rejects as a host without a listening process does. */
  readonly reject: ChainSpec;
  /** For packets that match no frontend: rejects other ports of cluster IPs, drops unallocated Service addresses. */
  readonly guardRails: ChainSpec;
  /** Drops packets to and from 127.0.0.0/8 that route_localnet would accept from other devices (CVE-2020-8558). */
  readonly guardLoopback: readonly ChainSpec[];
  /** The sets of these rules, and the addresses on which node ports answer. */
  readonly sets: readonly SetSpec[];
}

export function createServiceRules(family: IPFamily, node: NodeView): ServiceRules {
  const v4 = family === 'ipv4';
  const { source, destination } = addressFields(family);
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const keys: Readonly<Record<Keying, readonly Field[]>> = {
    address: [destination, 'meta.l4proto', 'th.dport'],
    port: ['meta.l4proto', 'th.dport'],
  };
  const types = (keying: Keying) => typesOf(...keys[keying]);
  const loopback = LOOPBACK[family];
  const isLoopback = (field: Field) => is(field, loopback.bytes, v4 ? maskOf(loopback) : null);
  const toLoopback = isLoopback(destination);
  const everyAddress = node.nodePortAddresses[family].all;

  const pods = podSource(node.localDetection, family);
  function fromPod(test: typeof is): Statement[] {
    if (pods === null) return [];
    if ('cidr' in pods) return [test(source, pods.cidr.bytes, maskOf(pods.cidr))];
    const { device, isPrefix } = pods;
    return [test('meta.iifname', isPrefix ? deviceName(device, device.length) : deviceName(device))];
  }

  const guardLoopback: ChainSpec = {
    name: 'guard-loopback',
    base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.raw },
    rules: [destination, source].map((end) => [
      isNot('meta.iifname', deviceName('lo')),
      isLoopback(end),
      drop,
    ]),
  };

  const hasPods = pods !== null;
  const restricted: Rule = [
    inSet('restricted', ...keys.address),
    notInSet('allowed-sources', ...keys.address, source),
    drop,
  ];
  const podsGoTo = (chain: string): Rule[] => (hasPods ? [[...fromPod(is), goto(chain)]] : []);
  const notNodePorts = (verdict: Statement): Rule[] => [
    [toLoopback, verdict],
    ...(everyAddress ? [] : [[notInSet('nodeport-networks', destination), verdict]]),
  ];
  return {
    family,
    source,
    destination,
    address,
    hasPods,
    classes: hasPods ? SOURCE_CLASSES : ['node', 'external'],
    podsGoTo,
    key: (keying) => keys[keying],
    types,
    toLoopback,
    notFromPod: fromPod(isNot),
    hairpin: [isNot('meta.oifname', deviceName('lo')), inSet('hairpin', source, destination), masquerade],
    restricted,
    enter: (from) => [restricted, ...podsGoTo('from-pod'), [goto(`from-${from}`)]],
    classChains(name, look, loopback) {
      const ports = `node-ports-from-${name}`;
      return [
        {
          name: ports,
          rules: [
            ...(name === 'node' && node.localhostNodePorts ? loopback : []),
            ...notNodePorts(goBack),
            ...look('port'),
          ],
        },
        {
          name: `from-${name}`,
          rules: [...look('address'), [destinationIsLocal, jump(ports)], [goto('guard-rails')]],
        },
      ];
    },
    notNodePorts,
    reject: {
      name: 'reject',
      rules: [[is('meta.l4proto', PROTOCOL_NUMBER.TCP), resetTcp], [rejectPacket]],
    },
    guardRails: {
      name: 'guard-rails',
      rules: [
        [inSet('cluster-ips', destination), goto('reject')],
        [inSet('own-addresses', destination), goBack],
        [inSet('service-networks', destination), drop],
      ],
    },
    guardLoopback: v4 && node.localhostNodePorts ? [guardLoopback] : [],
    sets: [
      { name: 'own-addresses', key: [address] },
      { name: 'service-networks', key: [address], interval: true },
      { name: 'nodeport-networks', key: [address], interval: true },
      { name: 'restricted', key: types('address') },
      { name: 'allowed-sources', key: [...types('address'), address], interval: true },
    ],
  };
}

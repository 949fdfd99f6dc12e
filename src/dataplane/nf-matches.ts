import type { Expression, SetDefinition } from '../kernel/nftables/batch.ts';
import { DATA_TYPE, type DataType, NFPROTO } from '../kernel/nftables/constants.ts';
import {
  BASE,
  bitwise,
  CMP,
  compare,
  inSet,
  META,
  meta,
  payload,
  rejectPort,
  rejectWithReset,
  setMeta,
  verdict,
} from '../kernel/nftables/expressions.ts';
import type { Cidr, IPFamily } from '../lib/address.ts';
import { addressWords } from '../nft/encoding.ts';
import { maskOf } from '../nft/ranges.ts';
import { hasLocalDetection } from '../service/classify.ts';
import type { NodeView } from '../service/model.ts';
import type { ChainDefinition } from './nf-table.ts';

/**
 * What a map of frontends is keyed by. `address`: destination, protocol and port, of Services' addresses. `port`:
 * protocol and port, of node ports.
 */
export type Keying = 'address' | 'port';

/** Priorities of hooks (linux/netfilter_ipv4.h). */
export const PRIORITY = { first: -500, raw: -300, natDestination: -100, filter: 0, natSource: 100 } as const;

/** Parts of rules for one family of a node, the same in every mode that has rules of nf_tables. */
export interface Matches {
  readonly protocol: number;
  /** Registers of an address. */
  readonly words: 1 | 4;
  readonly address: DataType;
  /** Packets of pods can be told from others. */
  readonly hasPods: boolean;
  /** Each loads what it names into the registers from `to`. */
  source(to: number): Expression;
  destination(to: number): Expression;
  destinationPort(to: number): Expression;
  /** Key of maps with this keying; `load` loads it into the registers from 0, and `keyWords` of them. */
  key(keying: Keying): DataType[];
  load(keying: Keying): Expression[];
  keyWords(keying: Keying): number;
  /** These end the rule unless the operation, CMP.equal or CMP.notEqual, holds. */
  toLoopback(operation: number): Expression[];
  fromLoopback(operation: number): Expression[];
  fromPod(operation: number): Expression[];
  fromDevice(name: string, operation: number): Expression[];
  /** Keeps these bits of the packet's mark, and sets those. */
  changeMark(keep: number, set: number): Expression[];
  /** Ends the rule unless one of these bits is set. */
  hasMark(bits: number): Expression[];
  /** Drops what comes from outside a frontend's source ranges. */
  readonly restricted: readonly Expression[];
  /** Refuses as a host does on which nobody listens. */
  readonly reject: ChainDefinition;
  /**
   * What no frontend took: ports that a Service has not are refused, other addresses of the networks of Services are
   * nobody's.
   */
  readonly guardRails: ChainDefinition;
  /** What route_localnet would let in from any device for, and from, 127.0.0.0/8 (CVE-2020-8558). */
  readonly guardLoopback: readonly ChainDefinition[];
  /** The sets that these rules look into, with those of addresses that node ports answer on. */
  readonly sets: readonly SetDefinition[];
}

const LOOPBACK_V4 = Uint8Array.of(127, 0, 0, 0);
const LOOPBACK_V6 = Uint8Array.from({ length: 16 }, (_, i) => (i === 15 ? 1 : 0));
/** IFNAMSIZ: a whole name is compared with the zeros behind it. */
const WHOLE_NAME = 16;

export function createMatches(family: IPFamily, node: NodeView): Matches {
  const v4 = family === 'ipv4';
  const words = addressWords(family);
  const bytes = words * 4;
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const source = (to: number) => payload(BASE.network, v4 ? 12 : 8, bytes, to);
  const destination = (to: number) => payload(BASE.network, v4 ? 16 : 24, bytes, to);
  const destinationPort = (to: number) => payload(BASE.transport, 2, 2, to);
  const key = (keying: Keying): DataType[] => [
    ...(keying === 'address' ? [address] : []),
    DATA_TYPE.protocol,
    DATA_TYPE.port,
  ];
  const load = (keying: Keying): Expression[] =>
    keying === 'address'
      ? [destination(0), meta(META.protocol, words), destinationPort(words + 1)]
      : [meta(META.protocol, 0), destinationPort(1)];

  const loopback = (load: Expression, operation: number): Expression[] =>
    v4
      ? [
          load,
          bitwise(0, 0, Uint8Array.of(255, 0, 0, 0), new Uint8Array(4)),
          compare(0, operation, LOOPBACK_V4),
        ]
      : [load, compare(0, operation, LOOPBACK_V6)];
  const inNetwork = (load: Expression, cidr: Cidr, operation: number): Expression[] => [
    load,
    bitwise(0, 0, maskOf(cidr), new Uint8Array(bytes)),
    compare(0, operation, cidr.bytes),
  ];
  const fromDevice = (name: string, operation: number, length = WHOLE_NAME): Expression[] => [
    meta(META.inInterface, 0),
    compare(0, operation, interfaceName(name, length)),
  ];

  function fromPod(operation: number): Expression[] {
    const detection = node.localDetection;
    switch (detection.mode) {
      case 'ClusterCIDR':
      case 'NodeCIDR': {
        const cidr = detection[family];
        return cidr ? inNetwork(source(0), cidr, operation) : [];
      }
      case 'BridgeInterface':
        return fromDevice(detection.interface, operation);
      case 'InterfaceNamePrefix':
        return fromDevice(detection.prefix, operation, detection.prefix.length);
    }
  }

  const guardLoopback: ChainDefinition = {
    name: 'guard-loopback',
    base: { type: 'filter', hook: 'prerouting', priority: PRIORITY.raw },
    rules: [destination, source].map((end) => [
      ...fromDevice('lo', CMP.notEqual),
      ...loopback(end(0), CMP.equal),
      verdict('drop'),
    ]),
  };

  return {
    protocol: NFPROTO[family],
    words,
    address,
    hasPods: hasLocalDetection(node, family),
    source,
    destination,
    destinationPort,
    key,
    load,
    keyWords: (keying) => (keying === 'address' ? words : 0) + 2,
    toLoopback: (operation) => loopback(destination(0), operation),
    fromLoopback: (operation) => loopback(source(0), operation),
    fromPod,
    fromDevice,
    changeMark: (keep, set) => [
      meta(META.mark, 0),
      bitwise(0, 0, little(keep), little(set)),
      setMeta(META.mark, 0),
    ],
    hasMark: (bits) => [
      meta(META.mark, 0),
      bitwise(0, 0, little(bits), little(0)),
      compare(0, CMP.notEqual, little(0)),
    ],
    restricted: [
      ...load('address'),
      inSet('restricted', 0),
      ...load('address'),
      source(words + 2),
      inSet('allowed-sources', 0, true),
      verdict('drop'),
    ],
    reject: {
      name: 'reject',
      rules: [
        [meta(META.protocol, 0), compare(0, CMP.equal, Uint8Array.of(6)), rejectWithReset],
        [rejectPort(v4 ? 3 : 4)],
      ],
    },
    guardRails: {
      name: 'guard-rails',
      rules: [
        [destination(0), inSet('cluster-ips', 0), verdict({ goto: 'reject' })],
        [destination(0), inSet('own-addresses', 0), verdict('return')],
        [destination(0), inSet('service-networks', 0), verdict('drop')],
      ],
    },
    guardLoopback: v4 && node.localhostNodePorts ? [guardLoopback] : [],
    sets: [
      { name: 'own-addresses', key: [address] },
      { name: 'service-networks', key: [address], interval: true },
      { name: 'nodeport-networks', key: [address], interval: true },
      { name: 'restricted', key: key('address') },
      { name: 'allowed-sources', key: [...key('address'), address], interval: true },
    ],
  };
}

/** A mark as it stands in a register, which holds the machine's byte order. */
export function little(value: number): Uint8Array {
  const out = new Uint8Array(4);
  new DataView(out.buffer).setUint32(0, value >>> 0, true);
  return out;
}

function interfaceName(name: string, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < Math.min(name.length, length); i++) bytes[i] = name.charCodeAt(i);
  return bytes;
}

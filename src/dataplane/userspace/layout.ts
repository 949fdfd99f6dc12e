import type { Expression, SetDefinition } from '../../kernel/nftables/batch.ts';
import { DATA_TYPE, type DataType, NFPROTO } from '../../kernel/nftables/constants.ts';
import {
  BASE,
  bitwise,
  CMP,
  CT,
  compare,
  ct,
  destinationIsLocal,
  dnat,
  fromMap,
  inSet,
  META,
  meta,
  payload,
  rejectPort,
  rejectWithReset,
  verdict,
  verdictMap,
} from '../../kernel/nftables/expressions.ts';
import type { IPFamily } from '../../lib/address.ts';
import { hasLocalDetection } from '../../service/classify.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { maskOf } from '../address-ranges.ts';
import type { ChainDefinition } from '../nf-table.ts';
import { addressWords } from '../words.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead-userspace';

/** `address`: by destination, protocol and port. `port`: by protocol and port, for node ports. */
export type Keying = 'address' | 'port';

/** Map from frontends to the listener that serves this class of sources: "services-pod", "nodeports-node", … */
export const listenerMap = (keying: Keying, source: SourceClass): string =>
  `${keying === 'port' ? 'nodeports' : 'services'}-${source}`;

/** Map from frontends without one to what becomes of the packet: "refused-pod", "nodeports-refused-node", … */
export const refusalMap = (keying: Keying, source: SourceClass): string =>
  `${keying === 'port' ? 'nodeports-' : ''}refused-${source}`;

/** Set of the listeners' own addresses; an element's comment is the id of the pool that it serves. */
export const LISTENERS = 'listeners';

/** The rules of one family, all of which depend on the node alone: Services are elements of the sets. */
export interface Layout {
  readonly sets: readonly SetDefinition[];
  /** In the order in which they may refer to each other. */
  readonly chains: readonly ChainDefinition[];
}

const NAT_DESTINATION = -100;
const FILTER = 0;
const IPS_DST_NAT = 0x20;

export function createLayout(family: IPFamily, node: NodeView): Layout {
  const v4 = family === 'ipv4';
  const protocol = NFPROTO[family];
  const words = addressWords(family);
  const bytes = words * 4;
  const none = new Uint8Array(4);
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const source = (to: number) => payload(BASE.network, v4 ? 12 : 8, bytes, to);
  const destination = (to: number) => payload(BASE.network, v4 ? 16 : 24, bytes, to);
  const hasPods = hasLocalDetection(node, family);

  const key = (keying: Keying): DataType[] => [
    ...(keying === 'address' ? [address] : []),
    DATA_TYPE.protocol,
    DATA_TYPE.port,
  ];
  const keyWords = (keying: Keying) => (keying === 'address' ? words : 0) + 2;
  /** Loads a key into the registers from 0. */
  const load = (keying: Keying): Expression[] => {
    const at = keying === 'address' ? words : 0;
    return [
      ...(keying === 'address' ? [destination(0)] : []),
      meta(META.protocol, at),
      payload(BASE.transport, 2, 2, at + 1),
    ];
  };
  /** Refuses, or sends to a listener, what a frontend of this keying is meant by. */
  const look = (keying: Keying, from: SourceClass): Expression[][] => [
    [...load(keying), verdictMap(refusalMap(keying, from), 0)],
    [
      ...load(keying),
      fromMap(listenerMap(keying, from), 0, keyWords(keying)),
      dnat(protocol, keyWords(keying), keyWords(keying) + words),
    ],
  ];

  const isLoopback: Expression[] = v4
    ? [
        destination(0),
        bitwise(0, 0, Uint8Array.of(255, 0, 0, 0), none),
        compare(0, CMP.equal, Uint8Array.of(127, 0, 0, 0)),
      ]
    : [
        destination(0),
        compare(
          0,
          CMP.equal,
          Uint8Array.from({ length: 16 }, (_, i) => (i === 15 ? 1 : 0)),
        ),
      ];
  const mask = new Uint8Array(4);
  new DataView(mask.buffer).setUint32(0, (1 << node.masqueradeBit) >>> 0, true);
  const isMarked: Expression[] = [
    meta(META.mark, 0),
    bitwise(0, 0, mask, none),
    compare(0, CMP.notEqual, none),
  ];

  /** Ends the rule unless the packet is a pod's. */
  function fromPod(): Expression[] {
    const detection = node.localDetection;
    switch (detection.mode) {
      case 'ClusterCIDR':
      case 'NodeCIDR': {
        const cidr = detection[family];
        if (!cidr) return [];
        return [
          source(0),
          bitwise(0, 0, maskOf(cidr), new Uint8Array(bytes)),
          compare(0, CMP.equal, cidr.bytes),
        ];
      }
      case 'BridgeInterface':
        return [meta(META.inInterface, 0), compare(0, CMP.equal, interfaceName(detection.interface, 16))];
      case 'InterfaceNamePrefix':
        return [
          meta(META.inInterface, 0),
          compare(0, CMP.equal, interfaceName(detection.prefix, detection.prefix.length)),
        ];
    }
  }

  const networks = node.nodePortAddresses[family];
  const classChains = (from: SourceClass): ChainDefinition[] => [
    {
      name: `node-ports-from-${from}`,
      rules: [
        ...(from === 'node' && node.localhostNodePorts
          ? look('port', 'node').map((rule) => [...isLoopback, ...rule])
          : []),
        [...isLoopback, verdict('return')],
        ...(networks.all ? [] : [[destination(0), inSet('nodeport-networks', 0, true), verdict('return')]]),
        ...look('port', from),
      ],
    },
    {
      name: `from-${from}`,
      rules: [
        ...look('address', from),
        [...destinationIsLocal, verdict({ jump: `node-ports-from-${from}` })],
        [verdict({ goto: 'guard-rails' })],
      ],
    },
  ];

  const restricted: Expression[] = [
    ...load('address'),
    inSet('restricted', 0),
    ...load('address'),
    source(words + 2),
    inSet('allowed-sources', 0, true),
    verdict('drop'),
  ];
  const pods: Expression[][] = hasPods ? [[...fromPod(), verdict({ goto: 'from-pod' })]] : [];

  const chains: ChainDefinition[] = [
    {
      name: 'reject',
      rules: [
        [meta(META.protocol, 0), compare(0, CMP.equal, Uint8Array.of(6)), rejectWithReset],
        [rejectPort(v4 ? 3 : 4)],
      ],
    },
    {
      name: 'guard-rails',
      rules: [
        [destination(0), inSet('cluster-ips', 0), verdict({ goto: 'reject' })],
        [destination(0), inSet('own-addresses', 0), verdict('return')],
        [destination(0), inSet('service-networks', 0), verdict('drop')],
      ],
    },
    ...SOURCE_CLASSES.filter((from) => hasPods || from !== 'pod').flatMap(classChains),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: NAT_DESTINATION },
      rules: [restricted, ...pods, [verdict({ goto: 'from-external' })]],
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: NAT_DESTINATION },
      // The proxy's own connections go to endpoints as they are: one that has the address of a frontend, as a host's
      // server behind a node port of the same number has, would come back to the proxy for ever.
      rules: [[...isMarked, verdict('accept')], restricted, ...pods, [verdict({ goto: 'from-node' })]],
    },
    {
      name: 'guard-listeners',
      base: { type: 'filter', hook: 'input', priority: FILTER },
      // Whoever finds a listener's own port would go round the source ranges and the traffic policies.
      rules: [
        [
          ...load('address'),
          inSet(LISTENERS, 0),
          ct(CT.status, 0),
          bitwise(0, 0, Uint8Array.of(IPS_DST_NAT, 0, 0, 0), none),
          compare(0, CMP.equal, none),
          verdict({ goto: 'reject' }),
        ],
      ],
    },
  ];

  const sets: SetDefinition[] = [
    ...(['address', 'port'] as const).flatMap((keying) =>
      SOURCE_CLASSES.flatMap((from): SetDefinition[] => [
        { name: listenerMap(keying, from), key: key(keying), data: [address, DATA_TYPE.port] },
        { name: refusalMap(keying, from), key: key(keying), data: 'verdict' },
      ]),
    ),
    { name: LISTENERS, key: key('address') },
    { name: 'cluster-ips', key: [address] },
    { name: 'own-addresses', key: [address] },
    { name: 'service-networks', key: [address], interval: true },
    { name: 'nodeport-networks', key: [address], interval: true },
    { name: 'restricted', key: key('address') },
    { name: 'allowed-sources', key: [...key('address'), address], interval: true },
  ];

  return { sets, chains };
}

function interfaceName(name: string, length: number): Uint8Array {
  const out = new Uint8Array(length);
  for (let i = 0; i < Math.min(name.length, length); i++) out[i] = name.charCodeAt(i);
  return out;
}

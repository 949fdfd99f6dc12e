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
  masquerade,
  meta,
  payload,
  random,
  rejectPort,
  rejectWithReset,
  setMeta,
  updateMap,
  verdict,
  verdictMap,
} from '../../kernel/nftables/expressions.ts';
import type { Cidr, IPFamily } from '../../lib/address.ts';
import { hasLocalDetection } from '../../service/classify.ts';
import type { NodeView } from '../../service/model.ts';
import { maskOf } from '../address-ranges.ts';
import type { ChainDefinition } from '../nf-table.ts';
import { addressWords } from '../words.ts';
import { classBefore } from './size-class.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead';

/**
 * What a map is keyed by. `address`: destination, protocol and port, of Services' addresses. `port`: protocol and
 * port, of node ports.
 */
export type Keying = 'address' | 'port';

/** `any`: the rule for all sources; `pod`, `external`: exceptions from it for packets of that class. */
export type Scope = 'any' | 'pod' | 'external';
export const SCOPES: readonly Scope[] = ['any', 'pod', 'external'];

/** `nonpod`: of every packet that is not a pod's. */
export type MasqueradeOf = 'none' | 'nonpod' | 'all';

/** Which of the shared chains picks a frontend's endpoint. */
export interface Pick {
  readonly keying: Keying;
  readonly scope: Scope;
  readonly size: number;
  readonly sticky: boolean;
  readonly masquerade: MasqueradeOf;
}

const prefixOf = (keying: Keying) => (keying === 'port' ? 'nodeport-' : '');
const scopeOf = (scope: Scope) => (scope === 'any' ? '' : `${scope}-`);

/** Map from frontends to chains: "services", "services-external", "nodeports", … */
export function frontendMap(keying: Keying, scope: Scope): string {
  const name = keying === 'port' ? 'nodeports' : 'services';
  return scope === 'any' ? name : `${name}-${scope}`;
}

/** Map from frontends and slots to endpoints: "endpoints-8", "nodeport-endpoints-external-3", … */
export function endpointMap(pick: Pick): string {
  return `${prefixOf(pick.keying)}endpoints-${scopeOf(pick.scope)}${pick.size}`;
}

/** "pick-8", "masq-nonpod-sticky-pick-8", "masq-all-nodeport-pick-3", … */
export function pickChain(pick: Pick): string {
  const masq = pick.masquerade === 'none' ? '' : `masq-${pick.masquerade}-`;
  return `${masq}${pick.sticky ? 'sticky-' : ''}${prefixOf(pick.keying)}pick-${scopeOf(pick.scope)}${pick.size}`;
}

/** Set of the frontends whose clients come back to the same endpoint for `seconds`. */
export function stickySet(keying: Keying, seconds: number): string {
  return `${prefixOf(keying)}sticky-${seconds}`;
}

/** Everything about the rules of one family that depends on the node alone. */
export interface Layout {
  readonly family: IPFamily;
  readonly protocol: number;
  /** Packets of pods can be told from others. */
  readonly hasPods: boolean;
  /** Key of maps with this keying; `slot` adds the number that is drawn. */
  key(keying: Keying, slot?: boolean): DataType[];
  readonly endpoint: readonly DataType[];
  readonly sets: readonly SetDefinition[];
  readonly chains: readonly ChainDefinition[];
  /** The chains of a pick, those that it needs first. */
  pickChains(pick: Pick): ChainDefinition[];
  /** Rules of the chain "remember" for one affinity timeout. */
  rememberRules(seconds: number): (readonly Expression[])[];
}

const NAT_DESTINATION = -100;
const NAT_SOURCE = 100;
const RAW = -300;
const IPS_DST_NAT = 0x20;
/** How many clients are remembered in all; each takes about 250 bytes of kernel memory. */
const AFFINITY_SIZE = 1 << 20;
const AFFINITY = 'affinity';
/** How often a slot is drawn before the draw that cannot miss. */
const DRAWS = 3;

export function createLayout(family: IPFamily, node: NodeView): Layout {
  const v4 = family === 'ipv4';
  const protocol = NFPROTO[family];
  const words = addressWords(family);
  const bytes = words * 4;
  const address = v4 ? DATA_TYPE.ipv4Address : DATA_TYPE.ipv6Address;
  const source = (to: number) => payload(BASE.network, v4 ? 12 : 8, bytes, to);
  const destination = (to: number) => payload(BASE.network, v4 ? 16 : 24, bytes, to);
  const destinationPort = (to: number) => payload(BASE.transport, 2, 2, to);
  const hasPods = hasLocalDetection(node, family);

  const key = (keying: Keying, slot = false): DataType[] => [
    ...(keying === 'address' ? [address] : []),
    DATA_TYPE.protocol,
    DATA_TYPE.port,
    ...(slot ? [DATA_TYPE.mark] : []),
  ];
  const endpoint = [address, DATA_TYPE.port];
  const affinityKey = [address, address, DATA_TYPE.protocol, DATA_TYPE.port];

  /** Loads a key into the registers from 0; `keyWords` is where the next one goes. */
  const load = (keying: Keying): Expression[] =>
    keying === 'address'
      ? [destination(0), meta(META.protocol, words), destinationPort(words + 1)]
      : [meta(META.protocol, 0), destinationPort(1)];
  const keyWords = (keying: Keying) => (keying === 'address' ? words : 0) + 2;

  const inNetwork = (load: Expression, cidr: Cidr, operation: number): Expression[] => [
    load,
    bitwise(0, 0, maskOf(cidr), new Uint8Array(bytes)),
    compare(0, operation, cidr.bytes),
  ];
  const loopback = (operation: number): Expression[] =>
    v4
      ? [
          destination(0),
          bitwise(0, 0, Uint8Array.of(255, 0, 0, 0), new Uint8Array(4)),
          compare(0, operation, Uint8Array.of(127, 0, 0, 0)),
        ]
      : [
          destination(0),
          compare(
            0,
            operation,
            Uint8Array.from({ length: 16 }, (_, i) => (i === 15 ? 1 : 0)),
          ),
        ];

  /** Ends the rule unless the packet is a pod's (`operation` equal) or is not (not equal). */
  function fromPod(operation: number): Expression[] {
    const detection = node.localDetection;
    switch (detection.mode) {
      case 'ClusterCIDR':
      case 'NodeCIDR': {
        const cidr = detection[family];
        return cidr ? inNetwork(source(0), cidr, operation) : [];
      }
      case 'BridgeInterface':
        return [meta(META.inInterface, 0), compare(0, operation, interfaceName(detection.interface, 16))];
      case 'InterfaceNamePrefix':
        return [
          meta(META.inInterface, 0),
          compare(0, operation, interfaceName(detection.prefix, detection.prefix.length)),
        ];
    }
  }

  const mask = Uint8Array.of(0, 0, 0, 0);
  new DataView(mask.buffer).setUint32(0, (1 << node.masqueradeBit) >>> 0, true);
  const notMask = mask.map((byte) => ~byte & 0xff);
  const mark: Expression[] = [meta(META.mark, 0), bitwise(0, 0, notMask, mask), setMeta(META.mark, 0)];
  const unmark: Expression[] = [
    meta(META.mark, 0),
    bitwise(0, 0, notMask, new Uint8Array(4)),
    setMeta(META.mark, 0),
  ];
  const isMarked: Expression[] = [
    meta(META.mark, 0),
    bitwise(0, 0, mask, new Uint8Array(4)),
    compare(0, CMP.notEqual, new Uint8Array(4)),
  ];
  const wasTranslated: Expression[] = [
    ct(CT.status, 0),
    bitwise(0, 0, Uint8Array.of(IPS_DST_NAT, 0, 0, 0), new Uint8Array(4)),
    compare(0, CMP.notEqual, new Uint8Array(4)),
  ];

  const nodePortNetworks = node.nodePortAddresses[family];
  const look = (keying: Keying, scope: Scope): Expression[] => [
    ...load(keying),
    verdictMap(frontendMap(keying, scope), 0),
  ];

  /** `own`: for this node's own processes, who take the rule for all. */
  function classChains(name: 'pod' | 'node' | 'external'): ChainDefinition[] {
    const scope: Scope = name === 'node' ? 'any' : name;
    const scopes: Scope[] = scope === 'any' ? ['any'] : [scope, 'any'];
    const ports = `node-ports-from-${name}`;
    return [
      {
        name: `from-${name}`,
        rules: [
          ...scopes.map((s) => look('address', s)),
          [...destinationIsLocal, verdict({ jump: ports })],
          [verdict({ goto: 'guard-rails' })],
        ],
      },
      {
        name: ports,
        rules: [
          ...(name === 'node' && node.localhostNodePorts
            ? [
                [...loopback(CMP.equal), ...mark],
                [...loopback(CMP.equal), ...look('port', 'any')],
                // No node port: whoever is connected to on a loopback address sees the client as it is.
                [...loopback(CMP.equal), ...unmark],
              ]
            : []),
          [...loopback(CMP.equal), verdict('return')],
          ...(nodePortNetworks.all
            ? []
            : [[destination(0), inSet('nodeport-networks', 0, true), verdict('return')]]),
          ...scopes.map((s) => look('port', s)),
        ],
      },
    ];
  }

  const restricted: Expression[] = [
    ...load('address'),
    inSet('restricted', 0),
    ...load('address'),
    source(words + 2),
    inSet('allowed-sources', 0, true),
    verdict('drop'),
  ];
  const classify: Expression[][] = hasPods ? [[...fromPod(CMP.equal), verdict({ goto: 'from-pod' })]] : [];

  const chains: ChainDefinition[] = [
    { name: 'remember', rules: [] },
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
    ...(hasPods ? classChains('pod') : []),
    ...classChains('node'),
    ...classChains('external'),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: NAT_DESTINATION },
      rules: [restricted, ...classify, [verdict({ goto: 'from-external' })]],
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: NAT_DESTINATION },
      rules: [restricted, ...classify, [verdict({ goto: 'from-node' })]],
    },
    {
      name: 'input',
      base: { type: 'nat', hook: 'input', priority: NAT_SOURCE },
      rules: [[...wasTranslated, verdict({ jump: 'remember' })]],
    },
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: NAT_SOURCE },
      rules: [
        [...wasTranslated, verdict({ jump: 'remember' })],
        [...isMarked, ...unmark, masquerade],
        [source(0), destination(words), inSet('hairpin', 0), masquerade],
      ],
    },
    // route_localnet lets packets for, and from, 127.0.0.0/8 in from any device (CVE-2020-8558).
    ...(v4 && node.localhostNodePorts
      ? [
          {
            name: 'guard-loopback',
            base: { type: 'filter', hook: 'prerouting', priority: RAW } as const,
            rules: [
              [...notLoopbackDevice(), ...loopback(CMP.equal), verdict('drop')],
              [
                ...notLoopbackDevice(),
                source(0),
                bitwise(0, 0, Uint8Array.of(255, 0, 0, 0), new Uint8Array(4)),
                compare(0, CMP.equal, Uint8Array.of(127, 0, 0, 0)),
                verdict('drop'),
              ],
            ] as Expression[][],
          },
        ]
      : []),
  ];

  const sets: SetDefinition[] = [
    ...(['address', 'port'] as const).flatMap((keying) =>
      SCOPES.map(
        (scope): SetDefinition => ({
          name: frontendMap(keying, scope),
          key: key(keying),
          data: 'verdict',
        }),
      ),
    ),
    { name: 'cluster-ips', key: [address] },
    { name: 'own-addresses', key: [address] },
    { name: 'service-networks', key: [address], interval: true },
    { name: 'nodeport-networks', key: [address], interval: true },
    { name: 'hairpin', key: [address, address] },
    { name: 'restricted', key: key('address') },
    { name: 'allowed-sources', key: [...key('address'), address], interval: true },
    { name: AFFINITY, key: affinityKey, data: endpoint, dynamic: true, size: AFFINITY_SIZE },
  ];

  function pickChains(pick: Pick): ChainDefinition[] {
    const name = pickChain(pick);
    if (pick.masquerade !== 'none') {
      const plain = { ...pick, masquerade: 'none' as const };
      const condition = pick.masquerade === 'nonpod' ? fromPod(CMP.notEqual) : [];
      return [
        ...pickChains(plain),
        { name, rules: [[...condition, ...mark], [verdict({ goto: pickChain(plain) })]] },
      ];
    }
    if (pick.sticky) {
      const plain = { ...pick, sticky: false };
      const data = 2 * words + 2;
      const again: Expression[] = [
        source(0),
        destination(words),
        meta(META.protocol, 2 * words),
        destinationPort(2 * words + 1),
        fromMap(AFFINITY, 0, data),
        dnat(protocol, data, data + words),
      ];
      return [...pickChains(plain), { name, rules: [again, [verdict({ goto: pickChain(plain) })]] }];
    }
    const at = keyWords(pick.keying);
    const draw = (modulus: number): Expression[] => [
      ...load(pick.keying),
      random(modulus, at),
      fromMap(endpointMap(pick), 0, at + 1),
      dnat(protocol, at + 1, at + 1 + words),
    ];
    const below = classBefore(pick.size);
    const draws =
      below === pick.size - 1
        ? [draw(pick.size)]
        : [...Array.from({ length: DRAWS }, () => draw(pick.size)), draw(below)];
    // A packet that finds the maps in the middle of a change is dropped: untranslated, it would leave a connection
    // tracking entry that keeps its flow from ever being translated.
    return [{ name, rules: [...draws, [verdict('drop')]] }];
  }

  const originalSource = v4 ? CT.ipv4Source : CT.ipv6Source;
  const originalDestination = v4 ? CT.ipv4Destination : CT.ipv6Destination;
  function rememberRules(seconds: number): Expression[][] {
    const data = 2 * words + 2;
    const update: Expression[] = [
      ct(originalSource, 0, true),
      ct(originalDestination, words, true),
      meta(META.protocol, 2 * words),
      ct(CT.protocolDestination, 2 * words + 1, true),
      destination(data),
      destinationPort(data + words),
      updateMap(AFFINITY, 0, data, seconds * 1000),
      verdict('return'),
    ];
    return [
      [
        ct(originalDestination, 0, true),
        meta(META.protocol, words),
        ct(CT.protocolDestination, words + 1, true),
        inSet(stickySet('address', seconds), 0),
        ...update,
      ],
      // Keyed by the address asked for as well: flows to a Service's address whose port has the number of a node
      // port get an entry here that nothing looks up.
      [
        meta(META.protocol, 0),
        ct(CT.protocolDestination, 1, true),
        inSet(stickySet('port', seconds), 0),
        ...update,
      ],
    ];
  }

  return { family, protocol, hasPods, key, endpoint, sets, chains, pickChains, rememberRules };
}

function notLoopbackDevice(): Expression[] {
  return [meta(META.inInterface, 0), compare(0, CMP.notEqual, interfaceName('lo', 16))];
}

function interfaceName(name: string, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let i = 0; i < Math.min(name.length, length); i++) bytes[i] = name.charCodeAt(i);
  return bytes;
}

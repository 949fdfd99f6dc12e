import type { Expression, SetDefinition } from '../../kernel/nftables/batch.ts';
import { DATA_TYPE, type DataType } from '../../kernel/nftables/constants.ts';
import {
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
  random,
  updateMap,
  verdict,
  verdictMap,
} from '../../kernel/nftables/expressions.ts';
import type { IPFamily } from '../../lib/address.ts';
import type { NodeView } from '../../service/model.ts';
import { createMatches, type Keying, PRIORITY } from '../nf-matches.ts';
import type { ChainDefinition } from '../nf-table.ts';
import { classBefore } from './size-class.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead';

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

const IPS_DST_NAT = 0x20;
/** How many clients are remembered in all; each takes about 250 bytes of kernel memory. */
const AFFINITY_SIZE = 1 << 20;
const AFFINITY = 'affinity';
/** How often a slot is drawn before the draw that cannot miss. */
const DRAWS = 3;

export function createLayout(family: IPFamily, node: NodeView): Layout {
  const v4 = family === 'ipv4';
  const matches = createMatches(family, node);
  const { protocol, words, address, hasPods, source, destination, destinationPort } = matches;
  const { load, keyWords, toLoopback, fromPod } = matches;
  const key = (keying: Keying, slot = false): DataType[] => [
    ...matches.key(keying),
    ...(slot ? [DATA_TYPE.mark] : []),
  ];
  const endpoint = [address, DATA_TYPE.port];
  const affinityKey = [address, address, DATA_TYPE.protocol, DATA_TYPE.port];
  const masqueradeBit = 1 << node.masqueradeBit;
  const mark = matches.changeMark(~masqueradeBit, masqueradeBit);
  const unmark = matches.changeMark(~masqueradeBit, 0);
  const isMarked = matches.hasMark(masqueradeBit);
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
                [...toLoopback(CMP.equal), ...mark],
                [...toLoopback(CMP.equal), ...look('port', 'any')],
                // No node port: whoever is connected to on a loopback address sees the client as it is.
                [...toLoopback(CMP.equal), ...unmark],
              ]
            : []),
          [...toLoopback(CMP.equal), verdict('return')],
          ...(nodePortNetworks.all
            ? []
            : [[destination(0), inSet('nodeport-networks', 0, true), verdict('return')]]),
          ...scopes.map((s) => look('port', s)),
        ],
      },
    ];
  }

  const classify: Expression[][] = hasPods ? [[...fromPod(CMP.equal), verdict({ goto: 'from-pod' })]] : [];

  const chains: ChainDefinition[] = [
    { name: 'remember', rules: [] },
    matches.reject,
    matches.guardRails,
    ...(hasPods ? classChains('pod') : []),
    ...classChains('node'),
    ...classChains('external'),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: [matches.restricted, ...classify, [verdict({ goto: 'from-external' })]],
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      rules: [matches.restricted, ...classify, [verdict({ goto: 'from-node' })]],
    },
    {
      name: 'input',
      base: { type: 'nat', hook: 'input', priority: PRIORITY.natSource },
      rules: [[...wasTranslated, verdict({ jump: 'remember' })]],
    },
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
      rules: [
        [...wasTranslated, verdict({ jump: 'remember' })],
        [...isMarked, ...unmark, masquerade],
        [source(0), destination(words), inSet('hairpin', 0), masquerade],
      ],
    },
    ...matches.guardLoopback,
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
    { name: 'hairpin', key: [address, address] },
    ...matches.sets,
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

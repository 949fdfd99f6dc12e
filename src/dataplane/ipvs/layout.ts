import type { Expression, SetDefinition } from '../../kernel/nftables/batch.ts';
import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
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
  rejectPort,
  rejectWithReset,
  setMeta,
  verdict,
  verdictMap,
} from '../../kernel/nftables/expressions.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { createMatches, type Keying, little, PRIORITY } from '../nf-matches.ts';
import type { ChainDefinition } from '../nf-table.ts';
import { SCOPES, type Scope } from '../nftables/layout.ts';
import type { MarkScheme } from './marks.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead-ipvs';

const KEYINGS: readonly Keying[] = ['address', 'port'];

/** Map from frontends to what becomes of their packets: "services", "services-external", "nodeports", … */
export function orderMap(keying: Keying, scope: Scope): string {
  const name = keying === 'port' ? 'nodeports' : 'services';
  return scope === 'any' ? name : `${name}-${scope}`;
}

/** Map from frontends to the marks of their virtual servers: "service-marks", "nodeport-marks-pod", … */
export function markMap(keying: Keying, scope: Scope): string {
  const name = keying === 'port' ? 'nodeport-marks' : 'service-marks';
  return scope === 'any' ? name : `${name}-${scope}`;
}

/** Map from frontends to ports of the alias address: "redirects-pod", "nodeport-redirects-external", … */
export function redirectMap(keying: Keying, source: SourceClass): string {
  return `${keying === 'port' ? 'nodeport-' : ''}redirects-${source}`;
}

/** Map from node ports to what becomes of them on loopback addresses. */
export const LOCALHOST_MAP = 'localhost-nodeports';

/** Chain that gives packets their virtual server's mark. */
export const steerChain = (keying: Keying, scope: Scope): string => `steer-by-${markMap(keying, scope)}`;

/** Everything about the rules of one family that depends on the node alone. */
export interface Layout {
  readonly family: IPFamily;
  readonly protocol: number;
  readonly hasPods: boolean;
  readonly sets: readonly SetDefinition[];
  readonly chains: readonly ChainDefinition[];
}

// IPVS takes packets for this node behind the packet filter, at NF_IP_PRI_NAT_SRC - 2 and - 1, and its own processes'
// at NF_IP_PRI_NAT_DST + 1 and + 2 (net/netfilter/ipvs/ip_vs_core.c): our rules come directly before it. What it has
// translated passes the output hook once more, from the start.
const BEFORE_IPVS_INPUT = 97;
const BEFORE_IPVS_OUTPUT = -99;
const CT_NEW = 8;

/**
 * The rules around IPVS: who may enter, what is refused, which virtual server where the address does not say, and
 * what is masqueraded. Only packets that open a flow are refused: open connections stay with their real server.
 */
export function createLayout(family: IPFamily, node: NodeView, marks: MarkScheme): Layout {
  const matches = createMatches(family, node);
  const { protocol, words, address, hasPods, source, destination, key, load, keyWords } = matches;
  const { toLoopback, fromPod, fromDevice, changeMark } = matches;
  const none = new Uint8Array(4);
  const isMarked = matches.hasMark(marks.masqueradeBit);
  const isSteered: Expression[] = [
    meta(META.mark, 0),
    bitwise(0, 0, little(marks.prefixMask), none),
    compare(0, CMP.equal, little(marks.prefix)),
  ];
  const opensFlow: Expression[] = [
    ct(CT.state, 0),
    bitwise(0, 0, little(CT_NEW), none),
    compare(0, CMP.notEqual, none),
  ];
  const openFlow: Expression[] = [
    ct(CT.state, 0),
    bitwise(0, 0, little(CT_NEW), none),
    compare(0, CMP.equal, none),
  ];
  const isProtocol = (number: number): Expression[] => [
    meta(META.protocol, 0),
    compare(0, CMP.equal, Uint8Array.of(number)),
  ];

  const look = (keying: Keying, scope: Scope): Expression[] => [
    ...load(keying),
    verdictMap(orderMap(keying, scope), 0),
  ];
  const allNodePorts = node.nodePortAddresses[family].all;

  function classChains(name: 'pod' | 'node' | 'external'): ChainDefinition[] {
    const scope: Scope = name === 'node' ? 'any' : name;
    const scopes: Scope[] = scope === 'any' ? ['any'] : [scope, 'any'];
    const ports = `node-ports-from-${name}`;
    return [
      {
        name: `from-${name}`,
        rules: [
          ...scopes.map((s) => look('address', s)),
          // The node's own ports do not answer on Services' addresses.
          [destination(0), inSet('addresses', 0), verdict({ goto: 'refuse' })],
          [...destinationIsLocal, verdict({ goto: ports })],
        ],
      },
      {
        name: ports,
        rules: [
          [...toLoopback(CMP.equal), verdict('accept')],
          ...(allNodePorts ? [] : [[destination(0), inSet('nodeport-networks', 0, true), verdict('accept')]]),
          ...scopes.map((s) => look('port', s)),
        ],
      },
    ];
  }

  /** Redirects what needs it before all else; first packets only, as any translation. */
  function redirectChain(name: SourceClass): ChainDefinition {
    const redirect = (keying: Keying): Expression[] => [
      ...load(keying),
      fromMap(redirectMap(keying, name), 0, keyWords(keying)),
      dnat(protocol, keyWords(keying), keyWords(keying) + words),
    ];
    return {
      name: `redirect-from-${name}`,
      rules: [
        redirect('address'),
        [destination(0), inSet('addresses', 0), accept],
        [...toLoopback(CMP.equal), accept],
        ...(allNodePorts ? [] : [[destination(0), inSet('nodeport-networks', 0, true), accept]]),
        [...destinationIsLocal, ...redirect('port')],
      ],
    };
  }

  const accept = verdict('accept');
  const restricted: Expression[] = [...opensFlow, ...matches.restricted];
  const classify: Expression[][] = hasPods ? [[...fromPod(CMP.equal), verdict({ goto: 'from-pod' })]] : [];
  const masqueradeBit = changeMark(~marks.masqueradeBit, marks.masqueradeBit);

  const chains: ChainDefinition[] = [
    {
      name: 'refuse',
      rules: [
        [...openFlow, accept],
        [...isProtocol(6), rejectWithReset],
        ...[17, 132].map((number) => [...isProtocol(number), rejectPort(family === 'ipv4' ? 3 : 4)]),
      ],
    },
    { name: 'lose', rules: [[...openFlow, accept], [verdict('drop')]] },
    { name: 'masquerade', rules: [[...masqueradeBit, accept]] },
    { name: 'masquerade-nonpod', rules: [[...fromPod(CMP.notEqual), ...masqueradeBit], [accept]] },
    {
      name: 'guard-rails',
      rules: [
        [...openFlow, accept],
        [destination(0), inSet('own-addresses', 0), accept],
        [destination(0), inSet('service-networks', 0), verdict('drop')],
      ],
    },
    ...KEYINGS.flatMap((keying) =>
      SCOPES.map(
        (scope): ChainDefinition => ({
          name: steerChain(keying, scope),
          rules: [
            [
              ...load(keying),
              fromMap(markMap(keying, scope), 0, keyWords(keying)),
              setMeta(META.mark, keyWords(keying)),
              accept,
            ],
          ],
        }),
      ),
    ),
    ...(hasPods ? classChains('pod') : []),
    ...classChains('node'),
    ...classChains('external'),
    ...(hasPods ? [redirectChain('pod')] : []),
    redirectChain('node'),
    redirectChain('external'),
    {
      name: 'redirect-prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: [
        restricted,
        ...(hasPods ? [[...fromPod(CMP.equal), verdict({ goto: 'redirect-from-pod' })]] : []),
        [verdict({ goto: 'redirect-from-external' })],
      ],
    },
    {
      name: 'redirect-output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      rules: [
        restricted,
        // IPVS sends nothing from a loopback address elsewhere.
        ...(node.localhostNodePorts
          ? [[...toLoopback(CMP.equal), ...load('port'), verdictMap(LOCALHOST_MAP, 0)]]
          : []),
        ...(hasPods ? [[...fromPod(CMP.equal), verdict({ goto: 'redirect-from-pod' })]] : []),
        [verdict({ goto: 'redirect-from-node' })],
      ],
    },
    {
      name: 'input',
      base: { type: 'filter', hook: 'input', priority: BEFORE_IPVS_INPUT },
      rules: [
        // The node's own packets, which have passed the output hook.
        [...fromDevice('lo', CMP.equal), accept],
        restricted,
        ...classify,
        [verdict({ goto: 'from-external' })],
      ],
    },
    {
      name: 'translated',
      base: { type: 'filter', hook: 'output', priority: PRIORITY.first },
      rules: [[...isSteered, ...changeMark(marks.masqueradeBit, 0)]],
    },
    {
      name: 'output',
      base: { type: 'filter', hook: 'output', priority: BEFORE_IPVS_OUTPUT },
      rules: [
        // Not translated yet: Services' addresses and node ports are local.
        [...destinationIsLocal, verdict({ jump: 'output-local' })],
        [verdict({ goto: 'guard-rails' })],
      ],
    },
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: PRIORITY.filter },
      rules: [[verdict({ goto: 'guard-rails' })]],
    },
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
      rules: [
        [...isMarked, ...changeMark(~marks.masqueradeBit, 0), masquerade],
        [source(0), destination(words), inSet('hairpin', 0), masquerade],
      ],
    },
    // Every packet carries its mark, not only the first: tunnels would copy it to their outer packets.
    {
      name: 'unmark',
      base: { type: 'filter', hook: 'postrouting', priority: PRIORITY.natSource + 1 },
      rules: [
        [...isSteered, ...changeMark(0, 0)],
        [...isMarked, ...changeMark(~marks.masqueradeBit, 0)],
      ],
    },
    ...matches.guardLoopback,
  ];
  const at = chains.findIndex(({ name }) => name === 'output');
  chains.splice(at, 0, {
    name: 'output-local',
    rules: [restricted, ...classify, [verdict({ goto: 'from-node' })]],
  });

  const sets: SetDefinition[] = [
    ...KEYINGS.flatMap((keying) =>
      SCOPES.flatMap((scope): SetDefinition[] => [
        { name: orderMap(keying, scope), key: key(keying), data: 'verdict' },
        { name: markMap(keying, scope), key: key(keying), data: [DATA_TYPE.mark] },
      ]),
    ),
    ...KEYINGS.flatMap((keying) =>
      SOURCE_CLASSES.map(
        (source): SetDefinition => ({
          name: redirectMap(keying, source),
          key: key(keying),
          data: [address, DATA_TYPE.port],
        }),
      ),
    ),
    { name: LOCALHOST_MAP, key: key('port'), data: 'verdict' },
    { name: 'addresses', key: [address] },
    { name: 'hairpin', key: [address, address] },
    ...matches.sets,
  ];
  return { family, protocol, hasPods, sets, chains };
}

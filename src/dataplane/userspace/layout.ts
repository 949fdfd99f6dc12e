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
  verdict,
  verdictMap,
} from '../../kernel/nftables/expressions.ts';
import type { IPFamily } from '../../lib/address.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { createMatches, type Keying, PRIORITY } from '../nf-matches.ts';
import type { ChainDefinition } from '../nf-table.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead-userspace';

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

const IPS_DST_NAT = 0x20;

export function createLayout(family: IPFamily, node: NodeView): Layout {
  const matches = createMatches(family, node);
  const { protocol, words, address, hasPods, destination, key, keyWords, load } = matches;
  const isLoopback = matches.toLoopback(CMP.equal);
  const none = new Uint8Array(4);

  /** Refuses, or sends to a listener, what a frontend of this keying is meant by. */
  const look = (keying: Keying, from: SourceClass): Expression[][] => [
    [...load(keying), verdictMap(refusalMap(keying, from), 0)],
    [
      ...load(keying),
      fromMap(listenerMap(keying, from), 0, keyWords(keying)),
      dnat(protocol, keyWords(keying), keyWords(keying) + words),
    ],
  ];

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

  const pods: Expression[][] = hasPods
    ? [[...matches.fromPod(CMP.equal), verdict({ goto: 'from-pod' })]]
    : [];

  const chains: ChainDefinition[] = [
    matches.reject,
    matches.guardRails,
    ...SOURCE_CLASSES.filter((from) => hasPods || from !== 'pod').flatMap(classChains),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: [matches.restricted, ...pods, [verdict({ goto: 'from-external' })]],
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      // The proxy's own connections go to endpoints as they are: one that has the address of a frontend, as a host's
      // server behind a node port of the same number has, would come back to the proxy for ever.
      rules: [
        [...matches.hasMark(1 << node.masqueradeBit), verdict('accept')],
        matches.restricted,
        ...pods,
        [verdict({ goto: 'from-node' })],
      ],
    },
    {
      name: 'guard-listeners',
      base: { type: 'filter', hook: 'input', priority: PRIORITY.filter },
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
    ...matches.sets,
  ];

  return { sets, chains };
}

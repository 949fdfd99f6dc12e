import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import { PRIORITY } from '../../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import {
  accept,
  CT_NEW,
  destinationIsLocal,
  deviceName,
  dnatTo,
  drop,
  goto,
  hasAny,
  hasNone,
  inSet,
  is,
  jump,
  markFrom,
  masquerade,
  type Rule,
  rejectPacket,
  resetTcp,
  type Statement,
  setMark,
  vmap,
} from '../../nft/rule.ts';
import type { ChainSpec, SetSpec } from '../../nft/spec.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { KEYINGS, type Keying } from '../rules/frontend-keys.ts';
import {
  ALL_SOURCES,
  createPicks,
  frontendMap,
  lookupsOf,
  masqueradeMark,
  type Pick,
  type PickTarget,
  type Sources,
} from '../rules/pick-chains.ts';
import { createServiceRules, type ServiceRules } from '../rules/service-rules.ts';
import type { MarkScheme } from './marks.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead-ipvs';

/**
 * Returns the map from frontends to the marks of their virtual servers: "service-marks",
 * "nodeport-marks-pod", …
 */
export function markMap(keying: Keying, sources: Sources): string {
  const name = keying === 'port' ? 'nodeport-marks' : 'service-marks';
  return sources === 'any' ? name : `${name}-${sources}`;
}

/**
 * Returns the map from frontends to ports of the alias address: "redirects-pod",
 * "nodeport-redirects-external", …
 */
export function redirectMap(keying: Keying, source: SourceClass): string {
  return `${keying === 'port' ? 'nodeport-' : ''}redirects-${source}`;
}

/** Map from node ports to their verdict on loopback addresses. */
export const LOCALHOST_MAP = 'localhost-nodeports';

/** Returns the chain that sets the mark of the virtual server. */
export const steerChain = (keying: Keying, sources: Sources): string =>
  `steer-by-${markMap(keying, sources)}`;

/** The part of the rules of one family that depends only on the node. */
export interface Layout {
  readonly family: IPFamily;
  readonly hasPods: boolean;
  readonly localhostNodePorts: boolean;
  readonly sets: readonly SetSpec[];
  readonly chains: readonly ChainSpec[];
  pick(pick: Pick): PickTarget;
}

/** Returns rules that reject packets of any protocol, with these conditions. */
export const refuse = (...conditions: readonly Statement[]): Rule[] => [
  [...conditions, is('meta.l4proto', PROTOCOL_NUMBER.TCP), resetTcp],
  [...conditions, is('meta.l4proto', PROTOCOL_NUMBER.UDP), rejectPacket],
  [...conditions, is('meta.l4proto', PROTOCOL_NUMBER.SCTP), rejectPacket],
];

export const opensFlow = hasAny('ct.state', CT_NEW);
const isOpenFlow = hasNone('ct.state', CT_NEW);

/**
 * Renders the rules around IPVS: source ranges, rejections, selection of virtual servers that the address does not
 * determine, and masquerading. Only packets that open a flow are rejected: open connections stay with their real server.
 */
export function createLayout(family: IPFamily, node: NodeView, marks: MarkScheme): Layout {
  const rules = createServiceRules(family, node);
  const { address, hasPods, destination, toLoopback, types } = rules;
  const isMarked = hasAny('meta.mark', marks.masqueradeBit);
  const isSteered = is('meta.mark', marks.prefix, marks.prefixMask);
  const { mark, unmark } = masqueradeMark(node);
  const restricted: Rule = [opensFlow, ...rules.restricted];

  const chains: ChainSpec[] = [
    { name: 'refuse', rules: [[isOpenFlow, accept], ...refuse()] },
    { name: 'lose', rules: [[isOpenFlow, accept], [drop]] },
    { name: 'masquerade', rules: [[mark, accept]] },
    { name: 'masquerade-nonpod', rules: [[...rules.notFromPod, mark], [accept]] },
    {
      name: 'guard-rails',
      rules: [
        [isOpenFlow, accept],
        [inSet('own-addresses', destination), accept],
        [inSet('service-networks', destination), drop],
      ],
    },
    ...KEYINGS.flatMap((keying) =>
      ALL_SOURCES.map(
        (sources): ChainSpec => ({
          name: steerChain(keying, sources),
          rules: [[markFrom(markMap(keying, sources), ...rules.key(keying)), accept]],
        }),
      ),
    ),
    ...rules.classes.flatMap((name) => classChains(rules, name)),
    ...rules.classes.map((name) => redirectChain(rules, name)),
    {
      name: 'redirect-prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: [restricted, ...rules.podsGoTo('redirect-from-pod'), [goto('redirect-from-external')]],
    },
    {
      name: 'redirect-output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      rules: [
        restricted,
        // IPVS does not send packets from a loopback address to other hosts.
        ...(node.localhostNodePorts ? [[toLoopback, vmap(LOCALHOST_MAP, ...rules.key('port'))]] : []),
        ...rules.podsGoTo('redirect-from-pod'),
        [goto('redirect-from-node')],
      ],
    },
    {
      name: 'input',
      base: { type: 'filter', hook: 'input', priority: PRIORITY.beforeIpvs },
      rules: [
        // Packets of the node itself have passed the output hook.
        [is('meta.iifname', deviceName('lo')), accept],
        restricted,
        ...rules.podsGoTo('from-pod'),
        [goto('from-external')],
      ],
    },
    {
      name: 'translated',
      base: { type: 'filter', hook: 'output', priority: PRIORITY.first },
      rules: [[isSteered, setMark(marks.masqueradeBit, 0)]],
    },
    { name: 'output-local', rules: [restricted, ...rules.podsGoTo('from-pod'), [goto('from-node')]] },
    {
      name: 'output',
      base: { type: 'filter', hook: 'output', priority: PRIORITY.beforeIpvsOutput },
      rules: [
        // Not translated yet: Services' addresses and node ports are local.
        [destinationIsLocal, jump('output-local')],
        [goto('guard-rails')],
      ],
    },
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: PRIORITY.filter },
      rules: [[goto('guard-rails')]],
    },
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
      rules: [[isMarked, unmark, masquerade], rules.hairpin],
    },
    // Cleared because every packet carries its mark, not only the first, and tunnels would copy it to their outer packets.
    {
      name: 'unmark',
      base: { type: 'filter', hook: 'postrouting', priority: PRIORITY.masqueraded },
      rules: [
        [isSteered, setMark(0, 0)],
        [isMarked, unmark],
      ],
    },
    ...rules.guardLoopback,
  ];

  const sets: SetSpec[] = [
    ...KEYINGS.flatMap((keying) =>
      ALL_SOURCES.flatMap((sources): SetSpec[] => [
        { name: frontendMap(keying, sources), key: types(keying), data: 'verdict' },
        { name: markMap(keying, sources), key: types(keying), data: [DATA_TYPE.mark] },
      ]),
    ),
    ...KEYINGS.flatMap((keying) =>
      SOURCE_CLASSES.map(
        (from): SetSpec => ({
          name: redirectMap(keying, from),
          key: types(keying),
          data: [address, DATA_TYPE.port],
        }),
      ),
    ),
    { name: LOCALHOST_MAP, key: types('port'), data: 'verdict' },
    { name: 'addresses', key: [address] },
    { name: 'hairpin', key: [address, address] },
    ...rules.sets,
  ];
  const { localhostNodePorts } = node;
  return { family, hasPods, localhostNodePorts, sets, chains, pick: createPicks(rules, node) };
}

function classChains(rules: ServiceRules, name: SourceClass): ChainSpec[] {
  const lookups = lookupsOf(name);
  const look = (keying: Keying): Rule[] =>
    lookups.map((sources) => [vmap(frontendMap(keying, sources), ...rules.key(keying))]);
  const ports = `node-ports-from-${name}`;
  return [
    {
      name: `from-${name}`,
      rules: [
        ...look('address'),
        // The node's ports do not answer on Services' addresses.
        [inSet('addresses', rules.destination), goto('refuse')],
        [destinationIsLocal, goto(ports)],
      ],
    },
    { name: ports, rules: [...rules.notNodePorts(accept), ...look('port')] },
  ];
}

/** Redirects packets to the alias address before all other rules; like any NAT, only first packets. */
function redirectChain(rules: ServiceRules, name: SourceClass): ChainSpec {
  const redirect = (keying: Keying) => dnatTo(redirectMap(keying, name), ...rules.key(keying));
  return {
    name: `redirect-from-${name}`,
    rules: [
      [redirect('address')],
      [inSet('addresses', rules.destination), accept],
      ...rules.notNodePorts(accept),
      [destinationIsLocal, redirect('port')],
    ],
  };
}

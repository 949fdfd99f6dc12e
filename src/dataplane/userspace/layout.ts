import { CHECKED_DSCP } from '../../kernel/dscp.ts';
import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import { PRIORITY } from '../../kernel/nftables/priorities.ts';
import { PROTOCOL_NUMBER } from '../../kernel/protocol-numbers.ts';
import type { IPFamily } from '../../lib/address.ts';
import {
  accept,
  CT_NEW,
  dnatTo,
  goto,
  hasAny,
  hasDscp,
  hasNone,
  IPS_DST_NAT,
  inSet,
  is,
  type Rule,
  type Statement,
  setDscp,
  vmap,
} from '../../nft/rule.ts';
import type { ChainSpec, SetSpec } from '../../nft/spec.ts';
import { type NodeView, SOURCE_CLASSES, type SourceClass } from '../../service/model.ts';
import { KEYINGS, type Keying } from '../rules/frontend-keys.ts';
import { createServiceRules } from '../rules/service-rules.ts';

/** The table of each family (`ip` and `ip6`). */
export const TABLE = 'fairlead-userspace';

/** Returns the map from frontends to listeners for a source class: "services-pod", "nodeports-node", … */
export const listenerMap = (keying: Keying, source: SourceClass): string =>
  `${keying === 'port' ? 'nodeports' : 'services'}-${source}`;

/** Returns the map from frontends without a listener to a reject or drop verdict: "refused-pod", "nodeports-refused-node", … */
export const refusalMap = (keying: Keying, source: SourceClass): string =>
  `${keying === 'port' ? 'nodeports-' : ''}refused-${source}`;

/** Set of the addresses of the listeners; an element's comment is the id of its pool. */
export const LISTENERS = 'listeners';

/**
 * Renders the rules of one family, which depend only on the node: Services are elements of the sets. `gate`: what to do with
 * packets that open connections to TCP listeners; null: accept them.
 */
export function createLayout(family: IPFamily, node: NodeView, gate: Statement | null = null) {
  const rules = createServiceRules(family, node);
  const { address, toLoopback, types } = rules;
  const isTcp = is('meta.l4proto', PROTOCOL_NUMBER.TCP);
  const toListener = inSet(LISTENERS, ...rules.key('address'));

  const look = (keying: Keying, from: SourceClass): Rule[] => [
    [vmap(refusalMap(keying, from), ...rules.key(keying))],
    [dnatTo(listenerMap(keying, from), ...rules.key(keying))],
  ];

  const onLoopback = look('port', 'node').map((rule) => [toLoopback, ...rule]);
  const chains: ChainSpec[] = [
    rules.reject,
    rules.guardRails,
    ...rules.classes.flatMap((from) => rules.classChains(from, (keying) => look(keying, from), onLoopback)),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: rules.enter('external'),
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      // Connections of the proxy are not translated: if an endpoint has the address of a frontend, such as
      // a host's server behind a node port with the same number, they would loop back to the proxy forever.
      rules: [[hasAny('meta.mark', 1 << node.masqueradeBit), accept], ...rules.enter('node')],
    },
    {
      name: 'clear-dscp',
      base: { type: 'filter', hook: 'output', priority: PRIORITY.filter },
      // Other nodes let connections with this code point pass to isolated pods: only the proxy may open
      // them.
      rules: [
        [
          hasAny('ct.state', CT_NEW),
          hasNone('meta.mark', 1 << node.masqueradeBit),
          hasDscp(CHECKED_DSCP, family),
          setDscp(0),
        ],
      ],
    },
    {
      name: 'guard-listeners',
      base: { type: 'filter', hook: 'input', priority: PRIORITY.filter },
      // A client that connects directly to a listener's port would bypass the source ranges and the traffic
      // policies.
      rules: [
        [toListener, hasNone('ct.status', IPS_DST_NAT), goto('reject')],
        ...(gate ? [[isTcp, hasAny('ct.state', CT_NEW), toListener, gate]] : []),
      ],
    },
    // A mode that this one succeeds leaves route_localnet on, for its open connections.
    ...rules.guardLoopback,
  ];

  const sets: SetSpec[] = [
    ...KEYINGS.flatMap((keying) =>
      SOURCE_CLASSES.flatMap((from): SetSpec[] => [
        { name: listenerMap(keying, from), key: types(keying), data: [address, DATA_TYPE.port] },
        { name: refusalMap(keying, from), key: types(keying), data: 'verdict' },
      ]),
    ),
    { name: LISTENERS, key: types('address') },
    { name: 'cluster-ips', key: [address] },
    ...rules.sets,
  ];

  return { sets, chains };
}

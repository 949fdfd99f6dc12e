import { DATA_TYPE } from '../../kernel/nftables/constants.ts';
import { PRIORITY } from '../../kernel/nftables/priorities.ts';
import type { IPFamily } from '../../lib/address.ts';
import {
  addressFields,
  goBack,
  hasAny,
  IPS_DST_NAT,
  inSet,
  jump,
  masquerade,
  type Statement,
  typesOf,
  vmap,
} from '../../nft/rule.ts';
import type { ChainSpec, Fragment, SetSpec } from '../../nft/spec.ts';
import type { NodeView, SourceClass } from '../../service/model.ts';
import { KEYINGS, type Keying } from '../rules/frontend-keys.ts';
import {
  AFFINITY,
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

/** Returns the name of the set of frontends whose affinity lasts `seconds`. */
export function stickySet(keying: Keying, seconds: number): string {
  return `${keying === 'port' ? 'nodeport-' : ''}sticky-${seconds}`;
}

/** The part of the rules of one family that depends only on the node. */
export interface Layout {
  readonly family: IPFamily;
  readonly hasPods: boolean;
  readonly sets: readonly SetSpec[];
  readonly chains: readonly ChainSpec[];
  pick(pick: Pick): PickTarget;
  /** The sets and rules of an affinity timeout. */
  timeout(seconds: number): Fragment;
}

/** The maximum number of clients with affinity; each takes about 250 bytes of kernel memory. */
const MAX_CLIENTS = 1 << 20;

export function createLayout(family: IPFamily, node: NodeView): Layout {
  const rules = createServiceRules(family, node);
  const { hasPods, source, destination, address } = rules;
  const { unmark } = masqueradeMark(node);
  const wasTranslated = hasAny('ct.status', IPS_DST_NAT);

  const chains: ChainSpec[] = [
    { name: 'remember', rules: [] },
    rules.reject,
    rules.guardRails,
    ...rules.classes.flatMap((name) => classChains(rules, node, name)),
    {
      name: 'prerouting',
      base: { type: 'nat', hook: 'prerouting', priority: PRIORITY.natDestination },
      rules: rules.enter('external'),
    },
    {
      name: 'output',
      base: { type: 'nat', hook: 'output', priority: PRIORITY.natDestination },
      rules: rules.enter('node'),
    },
    {
      name: 'input',
      base: { type: 'nat', hook: 'input', priority: PRIORITY.natSource },
      rules: [[wasTranslated, jump('remember')]],
    },
    {
      name: 'postrouting',
      base: { type: 'nat', hook: 'postrouting', priority: PRIORITY.natSource },
      rules: [
        [wasTranslated, jump('remember')],
        [hasAny('meta.mark', 1 << node.masqueradeBit), unmark, masquerade],
        rules.hairpin,
      ],
    },
    ...rules.guardLoopback,
  ];

  const sets: SetSpec[] = [
    ...KEYINGS.flatMap((keying) =>
      ALL_SOURCES.map(
        (sources): SetSpec => ({
          name: frontendMap(keying, sources),
          key: rules.types(keying),
          data: 'verdict',
        }),
      ),
    ),
    { name: 'cluster-ips', key: [address] },
    { name: 'hairpin', key: [address, address] },
    ...rules.sets,
    {
      name: AFFINITY,
      key: typesOf(source, destination, 'meta.l4proto', 'th.dport'),
      data: [address, DATA_TYPE.port],
      dynamic: true,
      size: MAX_CLIENTS,
    },
  ];

  const timeouts = new Map<number, Fragment>();
  return {
    family,
    hasPods,
    sets,
    chains,
    pick: createPicks(rules, node),
    timeout(seconds) {
      const fragment = timeouts.get(seconds) ?? timeoutFragment(rules, seconds);
      timeouts.set(seconds, fragment);
      return fragment;
    },
  };
}

/** The chains for one source class; the node's own processes use the general rule. */
function classChains(rules: ServiceRules, node: NodeView, name: SourceClass): ChainSpec[] {
  const look = (keying: Keying, sources: Sources): Statement =>
    vmap(frontendMap(keying, sources), ...rules.key(keying));
  const { toLoopback } = rules;
  const { mark, unmark } = masqueradeMark(node);
  return rules.classChains(name, (keying) => lookupsOf(name).map((sources) => [look(keying, sources)]), [
    [toLoopback, mark],
    [toLoopback, look('port', 'any')],
    // Except for node ports: a server on a loopback address sees the client's own address.
    [toLoopback, unmark],
  ]);
}

/** The sets of frontends with this affinity timeout, and the rules that record their clients. */
function timeoutFragment(rules: ServiceRules, seconds: number): Fragment {
  const { family, destination } = rules;
  const { originalSource, originalDestination } = addressFields(family);
  const remember: Statement = {
    kind: 'update',
    map: AFFINITY,
    key: [originalSource, originalDestination, 'meta.l4proto', 'ct.original.proto-dst'],
    data: [destination, 'th.dport'],
    timeoutMs: seconds * 1000,
  };
  return {
    chains: [],
    sets: KEYINGS.map((keying) => ({ name: stickySet(keying, seconds), key: rules.types(keying) })),
    rules: [
      {
        name: 'remember',
        rules: [
          [
            inSet(
              stickySet('address', seconds),
              originalDestination,
              'meta.l4proto',
              'ct.original.proto-dst',
            ),
            remember,
            goBack,
          ],
          // The key includes the original address: flows to a Service's address whose port is also a node
          // port number get an entry here that is never looked up.
          [inSet(stickySet('port', seconds), 'meta.l4proto', 'ct.original.proto-dst'), remember, goBack],
        ],
      },
    ],
  };
}

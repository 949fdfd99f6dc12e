import { ACTION, MAPS } from '../dataplane/ebpf/generated/layout.ts';
import { maglevTable } from '../dataplane/ebpf/maglev.ts';
import {
  FALLBACK_TABLE,
  type FrontendPlan,
  hasMembers,
  isFrontend,
  planOf,
  type RoutePlan,
} from '../dataplane/ebpf/plan.ts';
import { hostPort, type SocketAddress } from '../lib/address.ts';
import type { Endpoint, Frontend, Protocol } from '../service/model.ts';
import { nftBytes, nftSections } from './nft-objects.ts';
import { LATER_TRACKED, NFTABLES_HOOKS, nftablesContents, nftablesLookups } from './nftables.ts';
import {
  filled,
  type Lookups,
  mainFrontend,
  type ObjectSection,
  type RenderInput,
  type Rendering,
} from './rendering.ts';

/** The run of slots of a route. */
interface Run {
  readonly frontend: Frontend;
  readonly slots: readonly Endpoint[];
  readonly endpoints: readonly Endpoint[];
  readonly spared: readonly Endpoint[];
}

const ACTIONS: Readonly<Record<number, string>> = {
  [ACTION.PASS]: 'left to nf_tables',
  [ACTION.REFUSE]: 'refused',
};

export function renderEbpf(input: RenderInput): Rendering {
  const { map, frontends } = input;
  const planned = frontends.flatMap((frontend) => {
    const plan = planOf(frontend, (endpoint) => isFrontend(endpoint, frontend, map));
    return plan && !plan.isEmpty ? [{ frontend, plan, runs: runsOf(frontend, plan) }] : [];
  });
  const runs = planned.flatMap((one) => one.runs);
  const backends = new Set(
    runs.flatMap(({ frontend, endpoints, spared }) =>
      [...endpoints, ...spared].map((one) => `${hostPort(one)}/${frontend.protocol}`),
    ),
  );
  const contents = nftablesContents(input, FALLBACK_TABLE);
  const members = runs.filter(({ frontend }) => hasMembers(frontend));
  const section = (
    name: 'frontends' | 'endpoints' | 'members' | 'backends',
    lines: string[],
  ): ObjectSection => ({
    kind: 'BPF map entries',
    command: `bpftool map dump name ${MAPS[name].name}`,
    lines,
    // Services with the same endpoints share their numbers.
    isShared: name === 'backends',
  });
  const maps = [
    section(
      'frontends',
      planned.map(({ frontend, plan }) =>
        frontendWords(
          addressOf(frontend),
          frontend.protocol,
          routeWords(plan.pod, frontend),
          routeWords(plan.node, frontend),
        ),
      ),
    ),
    section(
      'endpoints',
      runs.flatMap(({ frontend, slots }) =>
        slots.map((one, i) => slotWords(addressOf(frontend), frontend.protocol, i, one)),
      ),
    ),
    section(
      'members',
      members.flatMap(({ endpoints, spared }) =>
        [...endpoints, ...spared].map((one) => `member ${hostPort(one)}`),
      ),
    ),
    section('backends', [...backends]),
  ];
  const main = mainFrontend(frontends);
  const plan = planned.find(({ frontend }) => frontend === main)?.plan ?? null;
  const isAtSocket = plan !== null && plan.pod.action !== ACTION.PASS;
  return {
    sections: filled([...maps, ...contents.flatMap(nftSections)]),
    sizes: [
      {
        what: 'BPF map entries',
        bytes: maps.reduce((sum, { lines }, i) => sum + lines.length * (ENTRY_BYTES[i] ?? 0), 0),
      },
      {
        what: 'netlink transaction of the fallback',
        bytes: contents.reduce((sum, one) => sum + nftBytes(one), 0),
      },
    ],
    translatedAt: isAtSocket
      ? "the client's socket: connect or sendmsg, before any packet"
      : `table ${FALLBACK_TABLE}, ${NFTABLES_HOOKS}`,
    firstPacket: main ? lookups(main, plan, input) : NONE,
    laterPackets: isAtSocket ? 'not translated' : LATER_TRACKED,
    notes: isAtSocket
      ? [
          'packets of clients without a socket on this node (outside) pass the rules of the fallback table, as in nftables mode',
        ]
      : ['the programs leave this Service to nf_tables'],
  };
}

const NONE: Lookups = { least: 0, most: 0, text: '' };
/** Bytes of an entry of frontends, endpoints (an array: no key), members and, since they are shared, none of backends. */
const ENTRY_BYTES = [
  MAPS.frontends.keySize + MAPS.frontends.valueSize,
  MAPS.endpoints.valueSize,
  MAPS.members.keySize + MAPS.members.valueSize,
  0,
];

/** Node ports, which have no address, are left to nf_tables. */
const addressOf = ({ address, port }: Frontend): SocketAddress => ({ ip: address ?? '', port });

/** Returns the runs of slots of a frontend; both of its routes share one if they have the same endpoints. */
function runsOf(frontend: Frontend, { pod, node }: FrontendPlan): Run[] {
  const isMaglev = frontend.options.balance === 'maglev';
  const run = ({ endpoints, spared }: RoutePlan): Run => ({
    frontend,
    slots: isMaglev ? maglevTable(endpoints) : endpoints,
    endpoints,
    spared,
  });
  const isSame = pod.endpoints === node.endpoints && pod.spared === node.spared;
  return [pod, ...(isSame ? [] : [node])].filter(({ endpoints }) => endpoints.length > 0).map(run);
}

function routeWords({ action, endpoints }: RoutePlan, { options }: Frontend): string {
  const count = options.balance === 'maglev' ? maglevTable(endpoints).length : endpoints.length;
  return actionWords(action, count);
}

/** Describes the action of the programs for a class of sockets. */
export const actionWords = (action: number, slots: number): string =>
  ACTIONS[action] ?? (slots === 1 ? '1 slot' : `${slots} slots`);

/** Describes an entry of the map of frontends. */
export const frontendWords = (at: SocketAddress, protocol: Protocol, pods: string, node: string): string =>
  `${hostPort(at)}/${protocol}: pods ${pods}, node ${node}`;

/** Describes a slot; `index`: within its run. */
export const slotWords = (
  frontend: SocketAddress,
  protocol: Protocol,
  index: number,
  at: SocketAddress,
): string => `${hostPort(frontend)}/${protocol} slot ${index}: ${hostPort(at)}`;

/** Counts the lookups of a pod's socket: the frontend, its slot, and whether the endpoint is ejected. */
function lookups(frontend: Frontend, plan: FrontendPlan | null, input: RenderInput): Lookups {
  const action = plan?.pod.action ?? ACTION.PASS;
  if (action === ACTION.PASS) {
    const { least, most, text } = nftablesLookups(frontend, input);
    return { least: least + 1, most: most + 1, text: `1 lookup at the socket; then in nf_tables ${text}` };
  }
  if (action === ACTION.REFUSE) return { least: 1, most: 1, text: '1 lookup, then the call is refused' };
  const total = 3 + (frontend.affinitySeconds === null ? 0 : 1);
  return {
    least: total,
    most: total,
    text: `${total} map lookups, regardless of the number of Services and endpoints`,
  };
}

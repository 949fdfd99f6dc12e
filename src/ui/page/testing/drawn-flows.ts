import type { TracedFlow } from '../../../cluster/trace-flow.ts';
import type { ExplainStep } from '../../../observe/explanation.ts';
import type { Change, End, Hop, Leg } from '../../../trace/hops.ts';

/** A traced flow, as far as its picture needs it. */
export type DrawnFlow = Pick<TracedFlow, 'trace' | 'lookups' | 'explanation'>;

export const CLIENT: End = { ip: '10.244.0.3', port: 40000 };
export const SERVICE: End = { ip: '10.96.0.60', port: 80 };
export const SERVER: End = { ip: '10.244.1.2', port: 8080 };
const PROXY: End = { ip: '172.30.0.11', port: 50000 };
export const LISTENER =
  'fairlead: listener tcp 172.30.0.11:43317 of pool default/hello:http/TCP/ipv4/cluster, process 9443';
const REDIRECT = 'nft: table ip fairlead-userspace, chain prerouting → chain from-pod, map services-pod';
/** The rules that mark packets for masquerading before IPVS translates them. */
const MARKS = 'nft: table ip fairlead-ipvs, chain input → chain from-pod, map services';
const CLIENT_POD = 'pod default/client';
const SERVER_POD = 'pod default/hello-tvkjblld8k-mlqb6';

/** The objects that translate in each mode, in the words of explain; null: a proxy in userspace. */
export const TRANSLATORS = {
  nftables:
    'nft: table ip fairlead, chain prerouting → chain from-pod, map services, element 10.96.0.60 . tcp . 80',
  ebpf: 'bpf: program connect4, map fl_frontends, key 10.96.0.60 port 80 protocol TCP',
  iptables: 'iptables -t nat chain PREROUTING',
  ipvs: 'ipvsadm: virtual server tcp 10.96.0.60:80',
  userspace: null,
} as const;
export type DrawnMode = keyof typeof TRANSLATORS;
export const DRAWN_MODES = Object.keys(TRANSLATORS) as DrawnMode[];

export const hopAt = (place: string, deviceText: string, extra: Partial<Hop> = {}): Hop => ({
  ...{
    sinceUs: 0,
    place,
    device: 'eth0',
    deviceText,
    direction: 'out',
    source: CLIENT,
    destination: SERVICE,
  },
  ...{ tunnel: null, changes: [] },
  ...extra,
});

export const legAt = (
  kind: Leg['kind'],
  way: Leg['way'],
  hops: readonly Hop[],
  extra: Partial<Leg> = {},
): Leg => ({ way, kind, error: null, isRelayed: false, repeatsUs: [], hops, ...extra });

export const flowOf = (legs: readonly Leg[], objects: readonly string[] = []): DrawnFlow => {
  const steps = objects.map(
    (ruleOrKey): ExplainStep => ({ subject: 'rule', object: null, ruleOrKey, text: ruleOrKey }),
  );
  return {
    trace: { legs } as unknown as DrawnFlow['trace'],
    lookups: [],
    explanation: { steps } as unknown as DrawnFlow['explanation'],
  };
};

const changed = (by: readonly string[]): Change[] => [
  { field: 'destination', before: '10.96.0.60:80', after: '10.244.1.2:8080', by },
];
const restored: readonly Change[] = [
  { field: 'source', before: '10.244.1.2:8080', after: '10.96.0.60:80', by: [] },
];

/** Which way a flow takes: `isDirect`: its answers skip the nodes between the first and the last. */
export interface Way {
  readonly nodes: number;
  readonly isTunnelled: boolean;
  readonly isDirect: boolean;
}

/** A flow of a pod to a Service through some nodes, as a trace in this mode shows it. */
export function flowThrough(mode: DrawnMode, { nodes, isTunnelled, isDirect }: Way): DrawnFlow {
  const names = Array.from({ length: nodes }, (_, i) => `node-${i + 1}`);
  const tunnel = isTunnelled ? { source: '172.30.0.11', destination: '172.30.0.12' } : null;
  const first = names[0] ?? '';
  const last = names.at(-1) ?? first;
  const uplink = (place: string) => hopAt(place, 'uplink eth0', { tunnel });
  const wire = (places: readonly string[]) =>
    places.flatMap((place, i) =>
      i === 0 || i === places.length - 1 ? [uplink(place)] : [uplink(place), uplink(place)],
    );
  const toClient = [
    hopAt(CLIENT_POD, 'eth0'),
    hopAt(first, 'veth of default/client'),
    hopAt(first, 'bridge fl0'),
  ];
  const toServer = [
    ...(nodes > 1 ? wire(names) : []),
    hopAt(last, 'bridge fl0'),
    hopAt(last, `veth of ${SERVER_POD.slice(4)}`),
    hopAt(SERVER_POD, 'eth0'),
  ];
  const back = (hops: readonly Hop[]) => {
    const between = isDirect ? hops.filter(({ place }) => ![...names.slice(1, -1)].includes(place)) : hops;
    return between.toReversed();
  };
  const atFirst = (hops: readonly Hop[], changes: readonly Change[]): Hop[] =>
    hops.map((hop, i) => (i === 0 ? { ...hop, changes } : hop));
  if (mode === 'userspace') {
    const opened = toServer.map((hop) => ({ ...hop, source: PROXY, destination: SERVER }));
    return flowOf(
      [
        legAt('SYN', 'there', toClient),
        legAt('SYN-ACK', 'back', toClient.toReversed()),
        legAt('SYN', 'there', atFirst(opened, changed([REDIRECT, LISTENER])), { isRelayed: true }),
        legAt('SYN-ACK', 'back', back(opened), { isRelayed: true }),
      ],
      [REDIRECT, LISTENER],
    );
  }
  const by = [...(mode === 'ipvs' ? [MARKS] : []), TRANSLATORS[mode]];
  const there =
    mode === 'ebpf'
      ? [...atFirst(toClient, changed(by)), ...toServer]
      : [...toClient, ...atFirst(toServer, changed(by))];
  const home = back([...toClient.slice(0, 2), ...(mode === 'ebpf' ? [] : toClient.slice(2)), ...toServer]);
  const answered =
    mode === 'ebpf'
      ? home
      : home.map((hop) => (hop.deviceText.includes('client') ? { ...hop, changes: restored } : hop));
  return flowOf([legAt('SYN', 'there', there), legAt('SYN-ACK', 'back', answered)], by);
}

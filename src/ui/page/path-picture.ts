import type { TracedFlow } from '../../cluster/trace-flow.ts';
import type { Change, Hop, Leg } from '../../trace/hops.ts';

/** A place in the picture of a path: a device of a namespace, or what translates the packet there. */
export interface Stop {
  /** Unique in the picture. */
  readonly id: string;
  readonly kind: 'device' | 'tables' | 'tunnel';
  readonly label: string;
}

/** A network namespace with the stops in it, in the order in which the packet passed them. */
export interface Box {
  readonly place: string;
  readonly kind: 'pod' | 'node' | 'other';
  readonly stops: readonly Stop[];
}

/** One step of the packet. */
export interface Step {
  readonly stop: string;
  readonly way: 'there' | 'back';
  /** "SYN to the server", as in `fairlead trace`. */
  readonly packet: string;
  /** Null: the translation before the next hop. */
  readonly hop: Hop | null;
  readonly changes: readonly Change[];
  readonly place: string;
}

export interface Picture {
  readonly boxes: readonly Box[];
  readonly steps: readonly Step[];
}

const WAYS = { there: 'to the server', back: 'to the client' } as const;

const PACKETS: Readonly<Record<Leg['kind'], string>> = {
  SYN: 'SYN',
  'SYN-ACK': 'SYN-ACK',
  RST: 'reset (RST)',
  segment: 'data',
  datagram: 'datagram',
  answer: 'answer',
  error: 'error',
};

/** In a question to a name server, and its answer. */
const DNS_PACKETS: Partial<typeof PACKETS> = { datagram: 'DNS query', answer: 'DNS answer' };

/** Draws the path of a traced packet from the devices that it passed. `lookup`: of this question before it; null: of itself. */
export function drawPath(
  { trace, lookups }: Pick<TracedFlow, 'trace' | 'lookups'>,
  lookup: number | null = null,
): Picture {
  const names = lookup === null ? PACKETS : { ...PACKETS, ...DNS_PACKETS };
  const drawn = lookup === null ? trace : (lookups[lookup]?.trace ?? null);
  const boxes = new Map<string, { place: string; kind: Box['kind']; stops: Stop[] }>();
  const steps: Step[] = [];
  const stopAt = (place: string, stop: Omit<Stop, 'id'>): string => {
    const id = `${place} | ${stop.kind} ${stop.label}`;
    let box = boxes.get(place);
    if (!box) {
      box = { place, kind: kindOf(place), stops: [] };
      boxes.set(place, box);
    }
    if (!box.stops.some((one) => one.id === id)) box.stops.push({ ...stop, id });
    return id;
  };
  for (const leg of drawn?.legs ?? []) {
    const packet = `${names[leg.kind]} ${WAYS[leg.way]}${leg.error === null ? '' : `: ${leg.error}`}`;
    for (const hop of leg.hops) {
      const { place } = hop;
      const step = { way: leg.way, packet, place };
      if (hop.changes.length > 0) {
        const stop = stopAt(place, { kind: 'tables', label: translatorText(hop.changes) });
        steps.push({ ...step, stop, hop: null, changes: hop.changes });
      }
      const isTunnel = hop.tunnel !== null;
      const stop = stopAt(place, {
        kind: isTunnel ? 'tunnel' : 'device',
        label: isTunnel ? `${hop.deviceText}, in VXLAN` : hop.deviceText,
      });
      steps.push({ ...step, stop, hop, changes: hop.changes });
    }
  }
  return { boxes: [...boxes.values()], steps };
}

export function kindOf(place: string): Box['kind'] {
  if (place.startsWith('pod ')) return 'pod';
  return ['outside', 'machine', 'control-plane'].includes(place) ? 'other' : 'node';
}

/** The kernel mechanism that translates, in words. */
function translatorText(changes: readonly Change[]): string {
  const by = changes.flatMap((change) => change.by);
  const found = MECHANISMS.find(([pattern]) => by.some((object) => pattern.test(object)));
  return found ? found[1] : 'connection tracking';
}

const MECHANISMS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [/^nft\b/, 'nf_tables rules'],
  [/^ip6?tables\b/, 'iptables rules'],
  [/^ipvs/, 'IPVS'],
  [/^bpf\b/, 'BPF program'],
  [/^fairlead\b|proxy/, 'userspace proxy'],
  [/^masquerading/, 'masquerading'],
];

/** Whether a rule or key of explain is an object whose text the server reads (src/cluster/object-text.ts). */
export const isKernelObject = (ruleOrKey: string | null): ruleOrKey is string =>
  ruleOrKey !== null && /^(nft|bpf|ipvsadm|ip|fairlead): |^ip6?tables -t /.test(ruleOrKey);

/**
 * Returns the command that prints a kernel object in its own tool's words, on the node of a hop; null: none is known. `object`: in
 * the words of explain ("nft: table ip fairlead, chain prerouting → chain from-pod, map services, element …").
 */
export function rawTextCommand(object: string, place: string, command: string): string | null {
  const exec = `${command} exec node/${place} --`;
  if (kindOf(place) !== 'node') return null;
  const [, family, table] = /^nft: table (\S+) ([^,\s]+)/.exec(object) ?? [];
  if (family && table) {
    const map = /\bmap ([\w-]+)/.exec(object)?.[1];
    const chain = [...object.matchAll(/\bchain ([\w-]+)/g)].at(-1)?.[1];
    if (map) return `${exec} nft list map ${family} ${table} ${map}`;
    return chain
      ? `${exec} nft list chain ${family} ${table} ${chain}`
      : `${exec} nft list table ${family} ${table}`;
  }
  const [, tool, chain] = /^(ip6?tables)\b.*?\b(KUBE-[A-Z0-9-]+|FAIRLEAD-[\w-]+)/.exec(object) ?? [];
  if (tool && chain) return `${exec} ${tool} -t nat -S ${chain}`;
  return null;
}

import type { TracedFlow } from '../../cluster/trace-flow.ts';
import type { Change, Hop, Leg } from '../../trace/hops.ts';
import { legTitle } from '../../trace/leg-title.ts';
import { drawProxied, findProxy } from './proxied-path.ts';

/** A place in the picture of a path: a device of a namespace, or what translates or receives the packet there. */
export interface Stop {
  /** Unique in the picture. */
  readonly id: string;
  readonly kind: 'device' | 'tables' | 'tunnel' | 'proxy';
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
  /** The number of the packet. */
  readonly leg: number;
  readonly way: 'there' | 'back';
  /** `proxy`: it belongs to the connection that a proxy opened to the server for the client's. */
  readonly connection: 'client' | 'proxy';
  /** "SYN to the server", as in `fairlead trace`. */
  readonly packet: string;
  /** Null: no device, but the translation before the next one, or the proxy. */
  readonly hop: Hop | null;
  readonly changes: readonly Change[];
  readonly place: string;
}

export interface Picture {
  readonly boxes: readonly Box[];
  readonly steps: readonly Step[];
}

/** In a question to a name server, and its answer. */
const DNS_TITLES = { datagram: 'DNS query', answer: 'DNS answer' } as const;

/** Draws the path of a traced packet from the devices that it passed. `lookup`: of this question before it; null: of itself. */
export function drawPath(
  { trace, lookups, explanation }: Pick<TracedFlow, 'trace' | 'lookups' | 'explanation'>,
  lookup: number | null = null,
): Picture {
  const legs = (lookup === null ? trace : (lookups[lookup]?.trace ?? null))?.legs ?? [];
  const proxy = lookup === null ? findProxy(explanation.steps, legs) : null;
  const drawing = createDrawing();
  for (const leg of legs) {
    drawing.nextLeg();
    if (proxy !== null) drawProxied(drawing, leg, proxy);
    else drawPlain(drawing, leg, legTitle(leg, false, lookup === null ? {} : DNS_TITLES));
  }
  return drawing.picture();
}

export type Drawing = ReturnType<typeof createDrawing>;
type StepFacts = Pick<Step, 'way' | 'connection' | 'packet'>;

/** Collects steps, and the boxes and stops that they need. */
function createDrawing() {
  const boxes = new Map<string, { place: string; kind: Box['kind']; stops: Stop[] }>();
  const steps: Step[] = [];
  let leg = -1;
  const add = (stop: Omit<Stop, 'id'>, step: Omit<Step, 'stop' | 'leg'>) => {
    const { place } = step;
    const id = `${place} | ${stop.kind} ${stop.label}`;
    let box = boxes.get(place);
    if (!box) {
      box = { place, kind: kindOf(place), stops: [] };
      boxes.set(place, box);
    }
    if (!box.stops.some((one) => one.id === id)) box.stops.push({ ...stop, id });
    steps.push({ ...step, stop: id, leg });
  };
  return {
    nextLeg() {
      leg++;
    },
    /** Draws what translates a packet at a place. */
    change: (step: StepFacts, place: string, changes: readonly Change[]) =>
      add({ kind: 'tables', label: translatorText(changes) }, { ...step, place, changes, hop: null }),
    proxy: (step: StepFacts, place: string, label: string, changes: readonly Change[]) =>
      add({ kind: 'proxy', label }, { ...step, place, changes, hop: null }),
    hop(step: StepFacts, hop: Hop, changes: readonly Change[] = hop.changes) {
      const { place, tunnel, deviceText } = hop;
      const isTunnel = tunnel !== null;
      add(
        {
          kind: isTunnel ? 'tunnel' : 'device',
          label: isTunnel ? `${deviceText}, in VXLAN` : deviceText,
        },
        { ...step, place, changes, hop },
      );
    },
    picture: (): Picture => ({ boxes: [...boxes.values()], steps }),
  };
}

/** Draws a leg that no proxy receives. */
function drawPlain(drawing: Drawing, { way, hops }: Leg, packet: string): void {
  const step = { way, packet, connection: 'client' } as const;
  for (const hop of hops) {
    if (hop.changes.length > 0) drawing.change(step, hop.place, hop.changes);
    drawing.hop(step, hop);
  }
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
  // Before the rules that only mark its packets.
  [/^ipvs/, 'IPVS'],
  [/^nft\b/, 'nf_tables rules'],
  [/^ip6?tables\b/, 'iptables rules'],
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

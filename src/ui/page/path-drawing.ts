import type { Change, Hop } from '../../trace/hops.ts';

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

export type Drawing = ReturnType<typeof createDrawing>;

type StepFacts = Pick<Step, 'way' | 'connection' | 'packet'>;

/** Collects steps, and the boxes and stops that they need. */
export function createDrawing() {
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

import { readFileSync } from 'node:fs';

/** Endpoints of a Service. */
export const PER_SERVICE = 10;
/** Medians are of this many changes, or of as many as fit into the time. */
const CHANGES = 300;
const CHANGES_MS = 3000;

/** Milliseconds. */
export interface Step {
  /** From API object to committed; for kube-proxy's layouts from text to committed. */
  readonly total: number;
  readonly encode: number;
  readonly kernel: number;
  /** Processor time of this process meanwhile, which other work on the machine does not add to; null: not its own. */
  readonly processor: number | null;
}

export interface Measurement {
  /** API objects to ServiceMap. */
  readonly compile: number | null;
  /** In a process that has just started; null where that makes no difference. */
  readonly first: Step | null;
  /** From no table to a full one: the fastest of several, where one takes no more than moments. */
  readonly cold: Step;
  /** In place of the table that is there. */
  readonly again: Step | null;
  readonly endpointAdded: Step | null;
  readonly endpointRemoved: Step | null;
  readonly serviceAdded: Step | null;
  readonly serviceRemoved: Step | null;
  readonly verify: number | null;
  /** Bytes. */
  readonly rss: number | null;
  readonly heap: number | null;
  readonly kernelMemory: number;
}

/** Medians of doing and undoing, in turns. The first tenth warms up. */
export async function alternate(
  make: (k: number) => Promise<Step>,
  undo: (k: number) => Promise<Step>,
): Promise<[Step, Step]> {
  const [made, undone]: [Step[], Step[]] = [[], []];
  const end = performance.now() + CHANGES_MS;
  for (let k = 1; k <= CHANGES && (performance.now() < end || k <= 3); k++) {
    made.push(await make(k));
    undone.push(await undo(k));
  }
  return [medians(made), medians(undone)];
}

function medians(steps: readonly Step[]): Step {
  const warm = steps.slice(Math.floor(steps.length / 10));
  const median = (of: (step: Step) => number) =>
    warm.map(of).sort((a, b) => a - b)[warm.length >> 1] ?? Number.NaN;
  return {
    total: median((s) => s.total),
    encode: median((s) => s.encode),
    kernel: median((s) => s.kernel),
    processor: null,
  };
}

/** Milliseconds, of all threads. */
export function processorSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Of the whole machine: other work on it shows. Bytes. */
export function kernelMemory(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}: +(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return (kib('Slab') + kib('VmallocUsed') + kib('Percpu')) * 1024;
}

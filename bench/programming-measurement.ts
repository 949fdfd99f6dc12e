import { readFileSync } from 'node:fs';

/** Endpoints of a Service. */
export const PER_SERVICE = 10;
/** Number of changes for medians, or fewer if they exceed the time. */
const CHANGES = 2000;
const CHANGES_MS = 6000;

/** Milliseconds. */
export interface Step {
  /** From API object until committed; for kube-proxy's layouts from text until committed. */
  readonly total: number;
  readonly encode: number;
  readonly kernel: number;
  /**
   * Processor time of this process, which excludes other work on the machine; null: another process does
   * the work.
   */
  readonly processor: number | null;
}

export interface Measurement {
  /** From API objects to ServiceMap. */
  readonly compile: number | null;
  /** In a newly started process; null if that makes no difference. */
  readonly first: Step | null;
  /** From an empty table to a full one: the fastest of several, unless one takes long. */
  readonly cold: Step;
  /** Replacing the existing table. */
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

/** Returns medians of doing and undoing, in turn. The first quarter warms up. */
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
  const warm = steps.slice(Math.floor(steps.length / 4));
  const median = (of: (step: Step) => number) =>
    warm.map(of).sort((a, b) => a - b)[warm.length >> 1] ?? Number.NaN;
  return {
    total: median((s) => s.total),
    encode: median((s) => s.encode),
    kernel: median((s) => s.kernel),
    processor: null,
  };
}

/** Returns milliseconds, of all threads. */
export function processorSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

/** Returns bytes of the whole machine, including other work on it. */
export function kernelMemory(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}: +(\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return (kib('Slab') + kib('VmallocUsed') + kib('Percpu')) * 1024;
}

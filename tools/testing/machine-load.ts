/** What the machine did besides the tests: a busy one explains a delay. */

export interface ProcessorTimes {
  /** Ticks of all processors. */
  readonly total: number;
  readonly idle: number;
  /** Ticks in which the hypervisor ran something else. */
  readonly stolen: number;
}

/** Reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)). */
export function parseProcessorTimes(stat: string): ProcessorTimes {
  const [line = ''] = stat.split('\n');
  // Guests' ticks, which come last, are also counted as those of users.
  const [user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, stolen = 0] = line
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const waiting = idle + iowait;
  return { total: user + nice + system + waiting + irq + softirq + stolen, idle: waiting, stolen };
}

/** Describes the time between two readings. */
export function describeLoad(before: ProcessorTimes, after: ProcessorTimes, loadavg: string): string {
  const total = Math.max(1, after.total - before.total);
  const percent = (ticks: number) => `${((100 * ticks) / total).toFixed(1)} %`;
  const [one = '?', five = '?', fifteen = '?'] = loadavg.split(' ');
  return `load ${one} ${five} ${fifteen}, processors idle ${percent(after.idle - before.idle)}, stolen ${percent(after.stolen - before.stolen)}`;
}

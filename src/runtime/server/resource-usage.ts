import { readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../../lib/clock.ts';
import { hasCode } from '../../lib/errors.ts';

/** Resource usage of a control group or of the machine. */
export interface ResourceUsage {
  /** Time of the reading: milliseconds since 1970. */
  readonly at: number;
  /** CPU time since the start. */
  readonly cpuNanoseconds: number;
  /** Average over the last second or more. */
  readonly cpuNanocores: number;
  readonly memoryBytes: number;
  /** Without file pages that the kernel can drop immediately. */
  readonly workingSetBytes: number;
  readonly rssBytes: number;
  readonly pageFaults: number;
  readonly majorPageFaults: number;
}

const PAGE_BYTES = 4096;
/** The minimum interval for a rate. */
const MIN_RATE_MS = 1000;
// sysconf(_SC_CLK_TCK), the unit of /proc/stat, is 100 on every Linux that Node.js runs on.
const TICK_NANOSECONDS = 10_000_000;

/** Reads usage, and stores earlier readings for the rates. */
export interface UsageReader {
  /**
   * Reads a control group. `group`: path below the hierarchy's root. `startedAt`: milliseconds. Returns null if it is
   * gone.
   */
  group(group: string, startedAt: number): ResourceUsage | null;
  machine(): ResourceUsage;
}

export function createUsageReader(groupRoot: string | null, clock: Pick<Clock, 'now'>): UsageReader {
  const earlier = new Map<string, { at: number; cpu: number; nanocores: number }>();
  const rate = (key: string, cpu: number, startedAt: number): number => {
    const at = clock.now();
    const last = earlier.get(key) ?? { at: startedAt, cpu: 0, nanocores: 0 };
    if (at - last.at < MIN_RATE_MS && last.cpu > 0) return last.nanocores;
    const nanocores = Math.max(0, Math.round(((cpu - last.cpu) * 1000) / Math.max(1, at - last.at)));
    earlier.delete(key);
    earlier.set(key, { at, cpu, nanocores });
    // Containers are replaced over time: the oldest readings are dropped.
    const [oldest] = earlier.keys();
    if (earlier.size > 4096 && oldest !== undefined) earlier.delete(oldest);
    return nanocores;
  };
  return {
    group(group, startedAt) {
      if (groupRoot === null) return null;
      const read = (file: string) => readOptional(join(groupRoot, group, file));
      const cpuText = read('cpu.stat');
      if (cpuText === null) return null;
      const cpuNanoseconds = Number(/^usage_usec (\d+)/m.exec(cpuText)?.[1] ?? 0) * 1000;
      const memory = read('memory.current');
      const stat = read('memory.stat') ?? '';
      const field = (name: string) => Number(new RegExp(`^${name} (\\d+)`, 'm').exec(stat)?.[1] ?? 0);
      // Without the memory controller: the resident memory of the group's processes.
      const memoryBytes = memory === null ? residentBytes(read('cgroup.procs') ?? '') : Number(memory);
      return {
        at: clock.now(),
        cpuNanoseconds,
        cpuNanocores: rate(group, cpuNanoseconds, startedAt),
        memoryBytes,
        workingSetBytes: Math.max(0, memoryBytes - field('inactive_file')),
        rssBytes: memory === null ? memoryBytes : field('anon'),
        pageFaults: field('pgfault'),
        majorPageFaults: field('pgmajfault'),
      };
    },
    machine() {
      const [, ...ticks] = (readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? '').split(/\s+/).map(Number);
      // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; user time includes guest time.
      const busy = [0, 1, 2, 5, 6, 7].reduce((sum, i) => sum + (ticks[i] ?? 0), 0);
      const cpuNanoseconds = busy * TICK_NANOSECONDS;
      const memory = readFileSync('/proc/meminfo', 'utf8');
      const bytes = (name: string) =>
        Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(memory)?.[1] ?? 0) * 1024;
      const used = bytes('MemTotal') - bytes('MemFree');
      return {
        at: clock.now(),
        cpuNanoseconds,
        cpuNanocores: rate('', cpuNanoseconds, bootTime()),
        memoryBytes: used,
        workingSetBytes: Math.max(0, bytes('MemTotal') - bytes('MemAvailable')),
        rssBytes: bytes('AnonPages'),
        pageFaults: vmstat('pgfault'),
        majorPageFaults: vmstat('pgmajfault'),
      };
    },
  };
}

/** Returns when the machine started: milliseconds since 1970. */
export function bootTime(): number {
  return Number(/^btime (\d+)/m.exec(readFileSync('/proc/stat', 'utf8'))?.[1] ?? 0) * 1000;
}

export function memoryTotal(): { readonly total: number; readonly available: number } {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? 0) * 1024;
  return { total: bytes('MemTotal'), available: bytes('MemAvailable') };
}

/** Returns bytes and inodes of a folder's file system. */
export function fileSystemUsage(folder: string) {
  const { bsize, blocks, bavail, bfree, files, ffree } = statfsSync(folder);
  return {
    capacityBytes: bsize * blocks,
    availableBytes: bsize * bavail,
    usedBytes: bsize * (blocks - bfree),
    inodes: files,
    inodesFree: ffree,
    inodesUsed: files - ffree,
  };
}

function residentBytes(pids: string): number {
  let bytes = 0;
  for (const pid of pids.split('\n').filter(Boolean)) {
    // proc_pid_statm(5): the second field counts resident pages.
    bytes += Number((readOptional(`/proc/${pid}/statm`) ?? '').split(' ')[1] ?? 0) * PAGE_BYTES;
  }
  return bytes;
}

function vmstat(name: string): number {
  return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(readFileSync('/proc/vmstat', 'utf8'))?.[1] ?? 0);
}

function readOptional(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENODEV', 'ESRCH')) return null;
    throw error;
  }
}

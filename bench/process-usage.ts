import { readFileSync } from 'node:fs';

/** Returns the resident memory of a process now, and its maximum; bytes. */
export function residentMemory(pid: number): { now: number; peak: number } {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kib = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(text)?.[1]);
  return { now: kib('VmRSS') * 1024, peak: kib('VmHWM') * 1024 };
}

/** Returns the processor time that a process and its ended children have used; seconds. */
export function processorTime(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  // proc(5): utime, stime, cutime and cstime, in ticks of 10 ms.
  return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0) / 100;
}

import { libc, systemError } from '../libc.ts';

const SYSCALL_NUMBER: Readonly<Record<string, number>> = { x64: 229, arm64: 114 };
/** Its resolution is that of the kernel's tick (LOW_RES_NSEC in linux/hrtimer.h). */
const CLOCK_REALTIME_COARSE = 5;

/** Converts milliseconds to the kernel's ticks (CONFIG_HZ), the unit of TCP timeouts in BPF programs; at least one. */
export function jiffies(milliseconds: number): number {
  const resolution = new Uint8Array(16);
  const number = SYSCALL_NUMBER[process.arch] ?? 114;
  if (Number(libc().syscall(number, CLOCK_REALTIME_COARSE, resolution, 0)) < 0) {
    throw systemError('read the resolution of a clock');
  }
  const nanoseconds = Number(new DataView(resolution.buffer).getBigInt64(8, true));
  return Math.max(1, Math.round((milliseconds * 1e6) / nanoseconds));
}

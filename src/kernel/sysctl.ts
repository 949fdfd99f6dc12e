import { readFileSync, writeFileSync } from 'node:fs';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { inNetns, type NetnsRef } from './netns.ts';

/**
 * A kernel parameter's file: "net/ipv4/ip_forward", or with dots as sysctl(8) prints it. Write slashes where a part
 * has a dot of its own, as an interface's name may: "net/ipv4/conf/eth0.100/rp_filter".
 */
function file(key: string): string {
  return `/proc/sys/${key.includes('/') ? key : key.replaceAll('.', '/')}`;
}

/**
 * Reads a kernel parameter; null when this kernel has none of that name. /proc/sys/net shows the network namespace
 * of the thread that reads, hence `netns`. Default: this thread's namespace.
 */
export function readSysctl(key: string, netns?: NetnsRef): string | null {
  const read = () => readFileSync(file(key), 'utf8').trim();
  try {
    return netns === undefined ? read() : inNetns(netns, read);
  } catch (error) {
    if (hasCode(error, 'ENOENT') && !(error instanceof FairleadError)) return null;
    throw error;
  }
}

/** Writes a kernel parameter. Throws FairleadError naming it; code ENOENT when this kernel has none of that name. */
export function writeSysctl(key: string, value: string | number, netns?: NetnsRef): void {
  const write = () => writeParameter(key, String(value));
  if (netns === undefined) write();
  else inNetns(netns, write);
}

/**
 * Gives kernel parameters their values, writing only those that differ: a write to a forwarding switch walks every
 * interface. A key that ends in "?" is optional: skipped when this kernel lacks it.
 */
export function applySysctls(values: Readonly<Record<string, string | number>>, netns?: NetnsRef): void {
  const apply = () => {
    for (const [name, value] of Object.entries(values)) {
      const optional = name.endsWith('?');
      const key = optional ? name.slice(0, -1) : name;
      const current = readSysctl(key);
      if (current === String(value) || (current === null && optional)) continue;
      writeParameter(key, String(value));
    }
  };
  if (netns === undefined) apply();
  else inNetns(netns, apply);
}

function writeParameter(key: string, value: string): void {
  try {
    writeFileSync(file(key), value);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'EIO';
    throw new FairleadError(`set sysctl ${key} to ${value}: ${code}`, {
      op: 'set sysctl',
      code,
      object: key,
      cause: error,
      ...(code === 'EROFS' ? { hint: '/proc/sys is mounted read-only: run with privileges' } : {}),
    });
  }
}

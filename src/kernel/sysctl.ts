import { existsSync, writeFileSync } from 'node:fs';
import { errorCode } from '../lib/error-codes.ts';
import { FairleadError } from '../lib/errors.ts';
import { inNetns, type NetnsRef } from './netns.ts';
import { readOptionalFile } from './optional-file.ts';

/**
 * Where the installed objects mount the node's /proc/sys/net in a container that is not privileged: container runtimes mount
 * /proc/sys read-only there, and let nothing be mounted below /proc.
 */
export const NODE_NET_SYSCTLS = '/host/proc/sys/net';

/**
 * Returns the file of "net.ipv4.ip_forward". Names use slashes if a part contains a dot, as an interface's
 * name may: "net/ipv4/conf/eth0.100/rp_filter". /proc/sys/net shows the namespace of the thread that opens
 * it.
 */
export function sysctlFile(name: string): string {
  const path = name.includes('/') ? name : name.replaceAll('.', '/');
  return path.startsWith('net/') && existsSync(NODE_NET_SYSCTLS)
    ? `/host/proc/sys/${path}`
    : `/proc/sys/${path}`;
}

/** Reads a kernel setting such as "net.ipv4.ip_forward"; returns null if this kernel does not have it. */
export function readSysctl(name: string, netns?: NetnsRef): string | null {
  return within(netns, () => read(name));
}

/**
 * Writes a kernel setting unless it already has the value. Returns false if this kernel does not have it;
 * throws if the kernel refuses (a read-only /proc/sys, a bad value).
 */
export function writeSysctl(name: string, value: string | number, netns?: NetnsRef): boolean {
  return within(netns, () => write(name, String(value)));
}

/**
 * Sets kernel settings in this order. Writes only those that differ, because writing a forwarding setting
 * walks all devices. Returns the names of those that this kernel does not have.
 */
export function writeSysctls(values: Readonly<Record<string, string | number>>, netns?: NetnsRef): string[] {
  return within(netns, () =>
    Object.entries(values).flatMap(([name, value]) => (write(name, String(value)) ? [] : [name])),
  );
}

function within<T>(netns: NetnsRef | undefined, work: () => T): T {
  return inNetns(netns, work);
}

function read(name: string): string | null {
  return readOptionalFile(sysctlFile(name))?.trim() ?? null;
}

function write(name: string, value: string): boolean {
  try {
    const current = read(name);
    if (current === null) return false;
    if (current !== value) writeFileSync(sysctlFile(name), value);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'EIO';
    throw new FairleadError(`cannot set ${name} to ${value}: ${code}`, {
      op: 'write sysctl',
      code: errorCode(code),
      object: name,
      hint: code === 'EINVAL' ? 'the kernel rejects this value' : 'run as root, with /proc/sys writable',
      cause: error,
    });
  }
}

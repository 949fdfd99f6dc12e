import { readFileSync, writeFileSync } from 'node:fs';
import { FairleadError, hasCode } from '../lib/errors.ts';
import { inNetns, type NetnsRef } from './netns.ts';

// Opened by the thread that is inside the namespace: /proc/sys/net shows the namespace of the opening task. Reached by
// thread-self, since /proc/sys is that of the thread group's leader.
const path = (name: string) => `/proc/sys/${name.replaceAll('.', '/')}`;

/** A kernel setting such as "net.ipv4.ip_forward", or null when this kernel lacks it. */
export function readSysctl(name: string, netns?: NetnsRef): string | null {
  const read = () => {
    try {
      return readFileSync(path(name), 'utf8').trim();
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return null;
      throw error;
    }
  };
  return netns === undefined ? read() : inNetns(netns, read);
}

/**
 * Writes a kernel setting unless it has the value already. False when this kernel lacks it; throws when it
 * refuses (a read-only /proc/sys, a bad value).
 */
export function writeSysctl(name: string, value: string | number, netns?: NetnsRef): boolean {
  const write = () => {
    try {
      if (readFileSync(path(name), 'utf8').trim() !== String(value)) writeFileSync(path(name), String(value));
      return true;
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return false;
      throw new FairleadError(`cannot set ${name} to ${value}`, {
        op: 'write sysctl',
        code: hasCode(error, 'EROFS') ? 'EROFS' : hasCode(error, 'EACCES', 'EPERM') ? 'EPERM' : 'EIO',
        object: name,
        hint: 'run as root, with /proc/sys writable',
        cause: error,
      });
    }
  };
  return netns === undefined ? write() : inNetns(netns, write);
}

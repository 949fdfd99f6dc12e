import { readFileSync } from 'node:fs';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';

/** Refuses to go on without root's rights. */
export function requireRoot(command: string): void {
  if (process.getuid?.() === 0) return;
  throw new FairleadError(`fairlead ${command} must run as root: it makes network namespaces and mounts`, {
    op: `fairlead ${command}`,
    code: 'not-root',
    hint: `sudo fairlead ${command}`,
  });
}

/** Checks what a local cluster needs of this kernel, before anything is made. Throws naming what is missing. */
export function requireKernel(): void {
  const missing = (what: string, cause?: unknown) =>
    new FairleadError(`this kernel lacks ${what}`, {
      op: 'check kernel',
      code: 'missing-kernel-feature',
      hint: `use a kernel with ${what} (any distribution's standard kernel has it)`,
      ...(cause === undefined ? {} : { cause }),
    });
  if (!/\boverlay\b/.test(readFileSync('/proc/filesystems', 'utf8')))
    throw missing('overlayfs (CONFIG_OVERLAY_FS)');
  const name = `fl-probe-${process.pid}`;
  try {
    createNetns(name);
  } catch (error) {
    throw missing(`network namespaces (${messageOf(error)})`, error);
  }
  try {
    const socket = openRouteSocket(name);
    try {
      getLink(socket, 'lo');
    } finally {
      socket.close();
    }
  } finally {
    removeNetns(name);
  }
}

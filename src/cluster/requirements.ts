import { readFileSync } from 'node:fs';
import { createNetns, removeNetns } from '../kernel/netns.ts';
import { getLink, openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import { installedCrunWarning } from '../runtime/crun-version.ts';

/** Throws unless the process runs as root. */
export function requireRoot(command: string): void {
  if (process.getuid?.() === 0) return;
  throw new FairleadError(`fairlead ${command} must run as root: it creates network namespaces and mounts`, {
    op: `fairlead ${command}`,
    code: 'not-root',
    hint: `sudo fairlead ${command}`,
  });
}

/**
 * Checks the kernel features that a local cluster needs, before anything is created. Throws FairleadError that names
 * the missing features.
 */
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

/** Returns warnings about programs that a local cluster runs; they do not keep it from running. */
export async function programWarnings(): Promise<string[]> {
  const warning = await installedCrunWarning();
  return warning === null ? [] : [warning];
}

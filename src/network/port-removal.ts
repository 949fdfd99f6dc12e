import type { NetnsRef } from '../kernel/netns.ts';
import { deleteLinkGroup, findLink, openRouteSocket, setLink } from '../kernel/rtnetlink/links.ts';
import { hasCode } from '../lib/errors.ts';

/** Removes devices without blocking the event loop, many as fast as one. */
export interface PortRemoval {
  /** Removes the device of this name; resolves when it is gone, or at once if it does not exist. */
  remove(name: string): Promise<void>;
  close(): void;
}

/** The device group for removal; the kernel's default is 0, and no other program uses this one ("flpd"). */
const GROUP = 0x666c7064;

/**
 * Opens the removal for a namespace. Removing a device takes the kernel tens of milliseconds, nearly all of
 * it waiting for RCU readers. A whole group takes as long, so requests during a removal are executed
 * together afterwards.
 */
export function openPortRemoval(netns: NetnsRef | undefined): PortRemoval {
  const socket = openRouteSocket(netns);
  let running: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  const waiting = new Set<string>();

  async function removeWaiting(): Promise<void> {
    let some = false;
    for (const name of waiting) {
      const link = findLink(socket, name);
      if (!link) continue;
      try {
        setLink(socket, link.index, { group: GROUP });
        some = true;
      } catch (error) {
        // Its peer was removed with a pod's namespace meanwhile.
        if (!hasCode(error, 'ENODEV')) throw error;
      }
    }
    waiting.clear();
    if (some) await deleteLinkGroup(socket, GROUP);
  }

  function afterRunning(): Promise<void> {
    next ??= (running ?? Promise.resolve())
      .catch(() => {})
      .then(() => {
        next = null;
        running = removeWaiting();
        return running;
      });
    return next;
  }

  return {
    remove(name) {
      waiting.add(name);
      return afterRunning();
    },
    close: () => socket.close(),
  };
}

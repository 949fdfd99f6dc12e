import { constants } from 'node:os';
import type { Container } from '../kube/types.ts';
import type { Image } from './rootfs.ts';

/**
 * Returns the signal that ends a container: its own (lifecycle.stopSignal, KEP-4960), the image's (a name with or
 * without "SIG", or a number), or SIGTERM if neither names a signal that Linux knows.
 */
export function stopSignal(container: Container, image: Pick<Image, 'stopSignal'>): NodeJS.Signals {
  const { stopSignal: own } = (container.lifecycle ?? {}) as { stopSignal?: string };
  const text = own || image.stopSignal;
  const found = Object.entries(constants.signals).find(
    ([name, number]) => name === text || name === `SIG${text}` || String(number) === text,
  );
  return (found?.[0] ?? 'SIGTERM') as NodeJS.Signals;
}

import type { ApiServices } from '../services.ts';
import { StatusError } from '../status-error.ts';

const WAIT_MS = 3000;

/** Waits briefly for a version that the client has seen and this server has not. Throws StatusError 504 on timeout. */
export async function waitForVersion(
  services: Pick<ApiServices, 'store' | 'clock'>,
  wanted: number,
): Promise<void> {
  if (wanted <= services.store.version) return;
  await new Promise<void>((resolve) => {
    services.clock.after(WAIT_MS, resolve);
  });
  if (wanted <= services.store.version) return;
  throw new StatusError(
    504,
    'Timeout',
    `Timeout: Too large resource version: ${wanted}, current: ${services.store.version}`,
    {
      causes: [{ reason: 'ResourceVersionTooLarge', message: 'Too large resource version' }],
      retryAfterSeconds: 1,
    },
  );
}

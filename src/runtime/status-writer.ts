import { hasReason, isOtherObject } from '../kube/client.ts';
import { type Pod, RESOURCES } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import type { KubeletOptions } from './options.ts';

type PodStatus = NonNullable<Pod['status']>;

export interface StatusWriterOptions extends Pick<KubeletOptions, 'clock' | 'logger' | 'signal'> {
  readonly client: Pick<KubeletOptions['client'], 'patch'>;
}

/** The pause after a failed write doubles up to the last one: an API server that is down, or refuses a status, is not flooded. */
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 10_000;

/** Writes pods' statuses: one write at a time for each pod, always the latest status, and only changes. */
export function statusWriter(options: StatusWriterOptions) {
  const { client, clock, logger, signal } = options;
  const wanted = new Map<string, { pod: Pod; status: PodStatus }>();
  const written = new Map<string, string>();
  const busy = new Map<string, Promise<void>>();
  const write = async (uid: string): Promise<void> => {
    let retryMs = FIRST_RETRY_MS;
    for (let next = wanted.get(uid); next && !signal.aborted; next = wanted.get(uid)) {
      wanted.delete(uid);
      const text = JSON.stringify(next.status);
      if (written.get(uid) === text) continue;
      const { name = '', namespace = '' } = next.pod.metadata ?? {};
      try {
        await client.patch(
          RESOURCES.pods,
          name,
          'strategic',
          { metadata: { uid }, status: next.status },
          { namespace, subresource: 'status' },
        );
        written.set(uid, text);
        retryMs = FIRST_RETRY_MS;
      } catch (error) {
        // Deleted, or replaced by another pod of this name.
        if (hasReason(error, 'NotFound', 'Conflict') || isOtherObject(error)) return;
        logger.warn({ pod: `${namespace}/${name}` }, `failed to write the pod's status: ${messageOf(error)}`);
        if (!wanted.has(uid)) wanted.set(uid, next);
        await new Promise<void>((resolve) => {
          clock.after(retryMs, resolve);
        });
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
      }
    }
  };
  return {
    publish(pod: Pod, status: PodStatus): void {
      const uid = pod.metadata?.uid ?? '';
      wanted.set(uid, { pod, status });
      if (busy.has(uid)) return;
      const writing = write(uid).finally(() => busy.delete(uid));
      busy.set(uid, writing);
    },
    async flushed(uid: string): Promise<void> {
      await busy.get(uid);
    },
    forget(uid: string): void {
      wanted.delete(uid);
      written.delete(uid);
    },
  };
}

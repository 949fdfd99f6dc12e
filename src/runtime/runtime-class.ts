import { type Client, hasReason } from '../kube/client.ts';
import type { Pod } from '../kube/types.ts';
import { KubeletError } from './kubelet-error.ts';

/** Handlers of RuntimeClasses that are served by this node's only OCI runtime. */
const HANDLERS = new Set(['', 'crun', 'runc']);

/** Rejects a pod whose RuntimeClass is missing or has an unknown handler. */
export async function checkRuntimeClass(client: Pick<Client, 'request'>, pod: Pod): Promise<void> {
  const name = pod.spec?.runtimeClassName ?? '';
  if (name === '') return;
  let handler: string;
  try {
    const path = `/apis/node.k8s.io/v1/runtimeclasses/${encodeURIComponent(name)}`;
    handler = ((await client.request('GET', path)) as { handler?: string }).handler ?? '';
  } catch (error) {
    if (!hasReason(error, 'NotFound')) throw error;
    throw new KubeletError('FailedCreatePodSandBox', `RuntimeClass ${JSON.stringify(name)} not found`, {
      op: 'create sandbox',
    });
  }
  if (HANDLERS.has(handler)) return;
  const known = [...HANDLERS].filter(Boolean).join(', ');
  throw new KubeletError(
    'FailedCreatePodSandBox',
    `no runtime for ${JSON.stringify(handler)} is configured: this node has ${known}`,
    { op: 'create sandbox' },
  );
}

import type { Container } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { containerResources } from './container-resources.ts';
import { type RunningContainer, updateContainer } from './oci-runtime.ts';
import type { RunnerContext } from './worker-context.ts';

/** Changes the limits of a running container (KEP-1287). Reports a failure as an event of the pod, and throws it. */
export async function resizeContainer(
  { paths, groups, events, pod }: RunnerContext,
  run: RunningContainer,
  container: Container,
): Promise<void> {
  try {
    await updateContainer(paths, run, containerResources(container, groups?.controllers ?? new Set()));
  } catch (error) {
    events.event(pod(), 'Warning', 'FailedResize', messageOf(error));
    throw error;
  }
}

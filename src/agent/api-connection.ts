import { inClusterSource, kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport, type Transport, type TransportOptions } from '../kube/transport.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { AgentConfiguration } from './configuration.ts';

/**
 * Connects to the configured API server, with credentials that are reloaded from their files. Throws if the
 * kubeconfig is malformed, or if there is none and the agent is not in a pod.
 */
export function connectToApi(
  { kubeconfig, server }: Pick<AgentConfiguration, 'kubeconfig' | 'server'>,
  {
    clock,
    logger,
    onAnswer,
  }: { readonly clock: Clock; readonly logger: Logger } & Pick<TransportOptions, 'onAnswer'>,
): Transport & { close(): void } {
  const following = {
    server,
    now: () => clock.now(),
    onProblem: (message: string) => logger.warn({}, message),
  };
  const source = kubeconfig === null ? inClusterSource(following) : kubeconfigSource(kubeconfig, following);
  return httpTransport(source, onAnswer === undefined ? {} : { onAnswer });
}

import { inClusterSource, kubeconfigSource } from '../kube/kubeconfig.ts';
import { httpTransport, type Transport, type TransportOptions } from '../kube/transport.ts';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/log.ts';
import type { AgentConfiguration } from './configuration.ts';

/**
 * Connects to the API server that the configuration names, with credentials that follow their files. Throws where the
 * kubeconfig is malformed, or where there is none and this is not a pod.
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

import type { AgentConfiguration } from './agent-configuration.ts';
import type { AgentOptions } from './agent-context.ts';
import { connectToApi } from './api-connection.ts';
import type { IdentityOptions } from './identity/node-identity.ts';
import type { KnownApiServers } from './known-api-servers.ts';

/** Returns what a node with an identity of its own needs to join and to renew it; null: it runs no pods, or has no kubeconfig. */
export function identityOptions(
  configuration: AgentConfiguration,
  { clock, random, logger, signal }: AgentOptions,
  { urls: known }: KnownApiServers,
  userAgent: string,
): IdentityOptions | null {
  const { pods, kubeconfig, bootstrapKubeconfig, nodeName, stateDir, server, servers } = configuration;
  if (!pods || kubeconfig === null) return null;
  const connect = (file: string) =>
    connectToApi({ kubeconfig: file, server, servers }, { clock, random, logger, known });
  return {
    ...{ nodeName, kubeconfig, bootstrapKubeconfig, stateDir, connect, userAgent },
    ...{ clock, random, logger, signal },
  };
}

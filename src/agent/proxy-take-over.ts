import type { Mode } from '../dataplane/dataplane.ts';
import type { IPFamily } from '../lib/address.ts';
import type { Logger } from '../lib/log.ts';
import type { ProxyConfiguration } from './agent-configuration.ts';
import type { AgentContext } from './agent-context.ts';
import { takeOver } from './kube-proxy-state.ts';
import { type bpfPlace, detectOtherProxies, isLiveProxy, takeOverFromOthers } from './other-proxies.ts';
import { findRunningKubeProxy, refuseToRunAlongside } from './running-kube-proxy.ts';

/** Finds other proxies of this node. Throws FairleadError if one runs, unless the agent runs beside it. */
export async function findOtherProxies(
  { beside }: AgentContext,
  proxied: ProxyConfiguration,
  place: ReturnType<typeof bpfPlace>,
  logger: Logger,
) {
  const evidence = await findRunningKubeProxy(proxied.mode);
  if (evidence !== null && !beside) refuseToRunAlongside(evidence);
  if (evidence !== null)
    logger.warn({ evidence }, 'kube-proxy is running on this node too: its rules are kept');
  const others = await detectOtherProxies(place, proxied.ipvsExcludedCidrs, logger);
  for (const { proxy, running } of others.filter(isLiveProxy)) {
    if (!beside) refuseToRunAlongside(running ?? '', proxy.name);
    logger.warn({ evidence: running }, `${proxy.name} is running on this node too: its state is kept`);
  }
  return { evidence, others };
}

/** Removes what other proxies left on the node, and reports it. */
export async function takeOverNode(
  { clock }: AgentContext,
  { ipvsExcludedCidrs: excluded }: ProxyConfiguration,
  logger: Logger,
  {
    mode,
    place,
    families,
    isKubeProxyLeft,
    report,
  }: {
    readonly mode: () => Mode;
    readonly place: ReturnType<typeof bpfPlace>;
    readonly families: readonly IPFamily[];
    /** kube-proxy does not run: its rules are removed. */
    readonly isKubeProxyLeft: boolean;
    readonly report: (reason: string, message: string) => void;
  },
): Promise<void> {
  const left = await takeOverFromOthers({ mode: mode(), place, excluded }, clock, logger);
  for (const one of left) report('TookOverFromProxy', `removed ${one}`);
  if (!isKubeProxyLeft) return;
  const removed = await takeOver({ mode: mode(), families, excluded }, clock, logger);
  if (removed.length === 0) return;
  report('TookOverFromKubeProxy', `removed the rules of kube-proxy: ${removed.join(', ')}`);
}

import { probeForged } from '../conformance/forged-probe.ts';
import { type Outcome, probeTcp, probeUdp } from '../conformance/probe.ts';
import { createProbeSockets } from '../conformance/probe-sockets.ts';
import { OWN_NETNS } from '../kernel/netns.ts';
import { listAddresses } from '../kernel/rtnetlink/addresses.ts';
import { openRouteSocket } from '../kernel/rtnetlink/links.ts';
import { familyOf, type IPFamily } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { hasSourceGuard } from '../network/source-guard.ts';
import type { AgentConfiguration } from './agent-configuration.ts';
import { badRequest } from './bad-request.ts';
import { createNetnsFinder } from './node-facts.ts';

/** Facts about a node that `check` needs before it sends packets. */
export interface NodeSettings {
  /** All addresses of the node, bridges included. */
  readonly addresses: readonly string[];
  readonly masqueradeAll: boolean;
  /** Whether the proxy recognizes the cluster's pods. */
  readonly localDetection: boolean;
  /** Whether packets of pods with forged sources are dropped. */
  readonly guardsPods: boolean;
  /** Whether the agent enforces network policies; absent: an agent of an earlier version does not say it. */
  readonly enforcesPolicies?: boolean;
}

/** The body of a request to send a probe of `check`. */
export interface ProbeBody {
  /** The addresses of the pod that sends it; null: the node. */
  readonly pod: readonly string[] | null;
  readonly protocol: 'TCP' | 'UDP';
  readonly family: IPFamily;
  readonly address: string;
  readonly port: number;
  /** Milliseconds without an answer that mean silence. */
  readonly patience: number;
  /** Instead of asking a server: sends datagrams with this source to a pod of this node; null: asks. */
  readonly forged?: { readonly source: string; readonly to: readonly string[] } | null;
}

/** Less than the time after which an API server's client gives up. */
const MAX_PATIENCE_MS = 25_000;

export function nodeSettings({ proxy }: Pick<AgentConfiguration, 'proxy'>): NodeSettings {
  using socket = openRouteSocket(OWN_NETNS);
  return {
    addresses: listAddresses(socket).map(({ address }) => address),
    masqueradeAll: proxy?.masqueradeAll ?? false,
    guardsPods: hasSourceGuard(OWN_NETNS),
    localDetection: proxy?.detectLocalMode !== 'ClusterCIDR' || proxy.clusterCidrs.length > 0,
  };
}

/** Returns a function that sends the probes of `check` from this node and its pods. */
export function createNodeProber(clock: Clock): (body: Partial<ProbeBody> | null) => Promise<Outcome> {
  const sockets = createProbeSockets(clock.now());
  const findNetns = createNetnsFinder();
  return async (body) => {
    const { pod = null, protocol, family, address = '', port = 0, patience = 0, forged = null } = body ?? {};
    if ((protocol !== 'TCP' && protocol !== 'UDP') || family === undefined || familyOf(address) !== family)
      throw badRequest('protocol, family and address do not describe a packet');
    const probe = protocol === 'TCP' ? probeTcp : probeUdp;
    const from = { netns: pod === null ? OWN_NETNS : findNetns(pod), controlGroup: null };
    const wait = Math.min(Number(patience), MAX_PATIENCE_MS);
    if (forged !== null) {
      const own = pod?.find((one) => familyOf(one) === family);
      if (own === undefined || familyOf(forged.source) !== family)
        throw badRequest('pod and forged do not describe a packet of a pod');
      const to = { netns: findNetns(forged.to), address };
      const ends = { from: { netns: from.netns, address: own }, to, source: forged.source };
      return await probeForged({ ...ends, clock, patience: wait });
    }
    const outcome = await probe({
      sockets,
      from,
      family,
      address,
      port: Number(port),
      clock,
      patience: wait,
    });
    // A check does not report what other servers answer.
    return outcome.kind === 'failed' && outcome.error.startsWith('answered ')
      ? { kind: 'failed', error: 'answered by a server that is not of the check' }
      : outcome;
  };
}

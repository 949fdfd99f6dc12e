import type { Amounts } from '../../kube/quota/amounts.ts';
import { FairleadError } from '../../lib/errors.ts';
import type { ServerTls } from '../../runtime/options.ts';
import type { PodNetwork } from '../../runtime/pod-network.ts';
import type { Traffic } from '../../runtime/traffic-end.ts';
import type { Link } from './link.ts';
import type { AgentNotices, RuntimeAnswers, RuntimeQuestion, Surroundings } from './messages.ts';

/** The parts of an agent by which the pod runtime of its node works. */
export interface RuntimeNeeds {
  readonly network: PodNetwork;
  /** Returns the uids of the node's own pods with addresses. */
  readonly attached: () => readonly string[];
  readonly surroundings: () => Surroundings;
  /** The allocatable resources of the Node object. */
  readonly allocatable: {
    readonly current: () => Amounts;
    readonly refresh: () => Promise<void>;
    readonly onChange: (listener: () => void) => void;
  };
  readonly serving: ServerTls & {
    readonly onChange?: (listener: (changed: Partial<ServerTls>) => void) => void;
  };
  /** Absent: the agent does not follow EndpointSlices. */
  readonly trafficOf?: (addresses: readonly string[]) => Traffic;
}

/** Answers a question of the pod runtime. `needs` null: the node has no pod network yet. */
export async function answerRuntime(
  needs: RuntimeNeeds | null,
  question: RuntimeQuestion,
): Promise<RuntimeAnswers[RuntimeQuestion['name']]> {
  if (needs === null)
    throw new FairleadError('the pod network is not ready', { op: question.name, code: 'not-ready' });
  const { network } = needs;
  switch (question.name) {
    case 'attach': {
      const { pid, ...pod } = question.body;
      const { ips } = await network.attach(pod, { pid });
      return { ips, surroundings: needs.surroundings() };
    }
    case 'detach':
      await network.detach(question.body.uid);
      return null;
    case 'collect':
      return { gone: await network.collect(new Set(question.body.keep)) };
    case 'traffic':
      return needs.trafficOf?.(question.body.addresses) ?? 'none';
    case 'refresh':
      await needs.allocatable.refresh();
      return needs.allocatable.current();
  }
}

/** Returns the notice that lets a runtime begin. `serving`: as it is now. */
export function openNotice(needs: RuntimeNeeds, serving: ServerTls): AgentNotices['open'] {
  const { network, attached, surroundings, allocatable, trafficOf } = needs;
  const { cert, key, clientCa } = serving;
  return {
    addresses: Object.fromEntries(attached().map((uid) => [uid, network.addresses(uid) ?? []])),
    allocatable: allocatable.current(),
    serving: { cert, key, clientCa },
    surroundings: surroundings(),
    knowsTraffic: trafficOf !== undefined,
  };
}

/** Sends a notice of the agent. */
export function notifyRuntime<N extends keyof AgentNotices>(
  link: Pick<Link, 'notify'>,
  name: N,
  body: AgentNotices[N],
): void {
  link.notify(name, body);
}

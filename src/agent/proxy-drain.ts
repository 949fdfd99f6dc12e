import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { ServiceProxy } from '../proxy/proxy-loop.ts';
import type { ModeSwitch } from './mode-switch.ts';

/**
 * How long open connections are waited for. Kubelet and systemd kill an agent 15 s after its SIGTERM, and the DNS server
 * may need two seconds of these.
 */
export const DRAIN_MS = 10_000;
/** The mode that handles new connections: it needs no more of the kernel than userspace mode. */
const STAND_IN: Mode = 'nftables';

export interface ProxyDrainOptions {
  readonly modes: Pick<ModeSwitch, 'mode' | 'standIn'>;
  /** Whether the mode of the node accepts connections to Services itself. */
  readonly isProxy: boolean;
  readonly proxy: Pick<ServiceProxy, 'dataplane' | 'map'>;
  /** The dataplanes, also of earlier modes, whose connections this process copies. */
  readonly relays: Iterable<Dataplane>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * Prepares for the end of the agent: another mode takes over new connections, so that none is refused until the next agent
 * runs. Then waits for the open ones that this process copies, at most 10 s, and resets the others.
 */
export async function drainProxy(options: ProxyDrainOptions): Promise<void> {
  const limit = new AbortController();
  const done = new AbortController();
  const late = pause(options.clock, DRAIN_MS, done.signal).then(() => limit.abort());
  // A kernel that does not answer must not keep the agent from ending.
  await Promise.race([drain(options, limit.signal), late]);
  done.abort();
}

async function drain(options: ProxyDrainOptions, limit: AbortSignal): Promise<void> {
  const { modes, isProxy, proxy, relays, logger } = options;
  // Before the first programming there are rules of the previous agent only.
  if (isProxy && proxy.map) {
    try {
      await modes.standIn(STAND_IN);
    } catch (error) {
      logger.error({ err: error }, `connections end with the agent: ${messageOf(error)}`);
    }
  }
  const ended = [...relays].filter((one) => one !== proxy.dataplane);
  const left = await Promise.all(ended.map((one) => one.abilities.connections?.drain?.(limit) ?? 0));
  const count = left.reduce((sum, one) => sum + one, 0);
  if (count > 0) logger.warn({ count }, `reset connections that were still open after ${DRAIN_MS / 1000} s`);
}

import { hostPort } from '../lib/address.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { CLASS_IN, type Message, RCODE, TYPE } from './message.ts';
import type { DnsMetrics } from './metrics.ts';
import { parseUpstream, type UpstreamAddress } from './resolv-conf.ts';
import { exchange, type OutgoingQuery } from './upstream-exchange.ts';

/** The timeouts of the attempts in milliseconds; in total less than the 5 s after which resolvers retry. */
const ATTEMPT_TIMEOUTS = [1000, 1500, 2000] as const;
/** Consecutive failures after which an upstream is not used until a probe succeeds. */
const FAILURES_TO_DOWN = 2;
const FIRST_PROBE_MS = 500;
const LAST_PROBE_MS = 8000;
const PROBE: OutgoingQuery = {
  question: { name: '', type: TYPE.NS, class: CLASS_IN },
  dnssecOk: false,
  checkingDisabled: false,
};

interface Upstream extends UpstreamAddress {
  readonly label: string;
  failures: number;
  /** Set while down. */
  cancelProbe: (() => void) | null;
}

export interface GroupContext {
  readonly clock: Clock;
  readonly random: () => number;
  readonly logger: Logger;
  readonly metrics: DnsMetrics | null;
}

/** A group of equivalent name servers. */
export interface UpstreamGroup {
  /** Resolves to the first usable reply, otherwise to the last reply, or rejects with the last error. */
  ask(query: OutgoingQuery): Promise<Message>;
  close(): void;
}

/** Creates a group. Throws FairleadError "bad-config" for an invalid address. */
export function createUpstreamGroup(addresses: readonly string[], context: GroupContext): UpstreamGroup {
  const { clock, random, logger, metrics } = context;
  const upstreams: Upstream[] = addresses.map((text) => {
    const { address, port } = parseUpstream(text);
    const label = hostPort({ ip: address, port });
    return { address, port, label, failures: 0, cancelProbe: null };
  });
  let closed = false;

  function succeeded(upstream: Upstream): void {
    if (upstream.cancelProbe) {
      upstream.cancelProbe();
      upstream.cancelProbe = null;
      logger.info({ upstream: upstream.label }, 'name server answers again');
    }
    upstream.failures = 0;
  }

  function failed(upstream: Upstream, error: unknown): void {
    upstream.failures++;
    if (upstream.failures < FAILURES_TO_DOWN || upstream.cancelProbe || closed) return;
    logger.warn({ upstream: upstream.label, error: messageOf(error) }, 'name server does not answer');
    probeAfter(upstream, FIRST_PROBE_MS);
  }

  function probeAfter(upstream: Upstream, delay: number): void {
    upstream.cancelProbe = clock.after(delay, () => {
      exchange(upstream, PROBE, 1000, random).then(
        () => succeeded(upstream),
        () => {
          metrics?.healthCheckFailed(upstream.label);
          if (upstream.cancelProbe && !closed) probeAfter(upstream, Math.min(delay * 2, LAST_PROBE_MS));
        },
      );
    });
  }

  /**
   * Returns the servers that are up, in random order; if none is, all of them, since a try is better than a
   * failure.
   */
  function candidates(): Upstream[] {
    const up = upstreams.filter((upstream) => upstream.cancelProbe === null);
    if (up.length === 0 && upstreams.length > 0) metrics?.allUpstreamsDown();
    const list = up.length > 0 ? up : [...upstreams];
    const start = Math.floor(random() * list.length);
    return [...list.slice(start), ...list.slice(0, start)];
  }

  return {
    async ask(query) {
      const list = candidates();
      let last: { reply: Message } | { error: unknown } = {
        error: new FairleadError('no upstream name server is configured', {
          op: 'forward query',
          code: 'bad-config',
          hint: "list name servers in dns.upstreams, or in the node's /etc/resolv.conf",
        }),
      };
      for (const [attempt, timeout] of ATTEMPT_TIMEOUTS.entries()) {
        const upstream = list[attempt % Math.max(1, list.length)];
        if (!upstream || closed) break;
        const started = clock.now();
        try {
          const reply = await exchange(upstream, query, timeout, random);
          succeeded(upstream);
          metrics?.forwarded(upstream.label, reply.rcode, (clock.now() - started) / 1000);
          if (reply.rcode !== RCODE.SERVFAIL && reply.rcode !== RCODE.REFUSED) return reply;
          last = { reply };
          if (attempt + 1 >= list.length) break;
        } catch (error) {
          failed(upstream, error);
          if ('error' in last) last = { error };
        }
      }
      if ('error' in last) throw last.error;
      return last.reply;
    },
    close() {
      closed = true;
      for (const upstream of upstreams) upstream.cancelProbe?.();
    },
  };
}

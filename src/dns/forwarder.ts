import { type Clock, systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { type CacheLimits, createAnswerCache, DEFAULT_CACHE_LIMITS } from './answer-cache.ts';
import { type Answer, emptyAnswer, type Message, type Name, RCODE } from './message.ts';
import type { DnsMetrics } from './metrics.ts';
import type { OutgoingQuery } from './upstream-exchange.ts';
import { createUpstreamGroup, type GroupContext, type UpstreamGroup } from './upstream-group.ts';

/** The maximum number of concurrent queries, like CoreDNS's max_concurrent; further ones get SERVFAIL at once. */
const MAX_CONCURRENT = 1000;

export interface ForwarderOptions {
  /** "10.0.0.1", "10.0.0.1:5353", "[fd00::1]:53". */
  readonly upstreams: readonly string[];
  /** Domain → its upstreams; the longest matching domain wins. */
  readonly stubDomains?: Readonly<Record<string, readonly string[]>>;
  readonly cache?: Partial<CacheLimits>;
  readonly metrics?: DnsMetrics;
  readonly logger?: Logger;
  readonly clock?: Clock;
  /** Unpredictable numbers in [0, 1), from which query ids are made. */
  readonly random?: () => number;
}

/** Resolves names outside the cluster through other name servers. */
export interface Forwarder {
  /** Returns a cached answer synchronously, otherwise a promise; never rejects: failures are SERVFAIL. */
  resolve(query: OutgoingQuery): Answer | Promise<Answer>;
  /** Replaces the default upstreams after a change of resolv.conf. Throws FairleadError "bad-config". */
  setUpstreams(upstreams: readonly string[]): void;
  /** False without upstreams: then recursion is not available (RFC 1035, RA). */
  readonly offersRecursion: boolean;
  close(): void;
}

/** Creates a forwarder. Throws FairleadError "bad-config" for an invalid upstream address. */
export function createForwarder(options: ForwarderOptions): Forwarder {
  const { clock = systemClock, random = secureRandom, logger = silentLogger, metrics = null } = options;
  const context: GroupContext = { clock, random, logger, metrics };
  const cache = createAnswerCache({ ...DEFAULT_CACHE_LIMITS, ...options.cache }, clock.now, (kind) =>
    metrics?.cacheEvicted(kind),
  );
  metrics?.observeCacheEntries(cache.count);
  const stubs = new Map<Name, UpstreamGroup>();
  for (const [domain, addresses] of Object.entries(options.stubDomains ?? {})) {
    stubs.set(domain.replace(/\.$/, '').toLowerCase(), createUpstreamGroup(addresses, context));
  }
  let upstreams = createUpstreamGroup(options.upstreams, context);
  let offersRecursion = options.upstreams.length > 0 || stubs.size > 0;
  const underWay = new Map<string, Promise<Answer>>();

  function groupFor(name: Name): UpstreamGroup {
    if (stubs.size > 0) {
      for (let rest = name.toLowerCase(); ; ) {
        const stub = stubs.get(rest);
        if (stub) return stub;
        const dot = rest.indexOf('.');
        if (dot < 0) break;
        rest = rest.slice(dot + 1);
      }
    }
    return upstreams;
  }

  async function ask(query: OutgoingQuery): Promise<Answer> {
    try {
      const answer = answerOf(await groupFor(query.question.name).ask(query));
      cache.set(query.question, query, answer);
      return answer;
    } catch (error) {
      logger.debug({ name: query.question.name, error: messageOf(error) }, 'cannot resolve');
      return emptyAnswer(RCODE.SERVFAIL);
    }
  }

  return {
    resolve(query) {
      const cached = cache.get(query.question, query);
      if (cached) {
        metrics?.cacheHit(cached.kind);
        return cached.answer;
      }
      metrics?.cacheMiss();
      const { name, type } = query.question;
      // In lower case: queries for all spellings at once would multiply the chance of a forged answer.
      const key = `${type} ${query.dnssecOk} ${query.checkingDisabled} ${name.toLowerCase()}`;
      const known = underWay.get(key);
      if (known) return known;
      if (underWay.size >= MAX_CONCURRENT) {
        metrics?.forwardRejected();
        return emptyAnswer(RCODE.SERVFAIL);
      }
      const asked = ask(query).finally(() => underWay.delete(key));
      underWay.set(key, asked);
      return asked;
    },
    setUpstreams(addresses) {
      const next = createUpstreamGroup(addresses, context);
      upstreams.close();
      upstreams = next;
      offersRecursion = addresses.length > 0 || stubs.size > 0;
    },
    get offersRecursion() {
      return offersRecursion;
    },
    close() {
      upstreams.close();
      for (const group of stubs.values()) group.close();
    },
  };
}

function answerOf(message: Message): Answer {
  return {
    rcode: message.rcode,
    authoritative: false,
    authenticData: message.authenticData,
    answers: message.answers,
    authorities: message.authorities,
    additionals: message.additionals,
  };
}

const secureRandom = (): number => (crypto.getRandomValues(new Uint32Array(1))[0] ?? 0) / 0x1_0000_0000;

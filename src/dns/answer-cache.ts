import { type Answer, type Question, RCODE, type ResourceRecord, TYPE } from './message.ts';
import type { CacheKind } from './metrics.ts';

export interface CacheLimits {
  /** Entries: positive and negative answers. */
  readonly maxEntries: number;
  /** Approximate memory for the records. */
  readonly maxBytes: number;
  /** Seconds. */
  readonly maxTtl: number;
  readonly maxNegativeTtl: number;
}

export const DEFAULT_CACHE_LIMITS: CacheLimits = {
  maxEntries: 10_000,
  maxBytes: 16 << 20,
  maxTtl: 3600,
  maxNegativeTtl: 1800,
};

/** How long failures, and negative answers without a TTL, are cached, in seconds; as in CoreDNS. */
const FAILURE_TTL = 5;

/** The bits of a query that affect its answer. */
export interface CacheFlags {
  readonly dnssecOk: boolean;
  readonly checkingDisabled: boolean;
}

interface Entry {
  readonly answer: Answer;
  readonly kind: CacheKind;
  readonly bytes: number;
  readonly stored: number;
  readonly expires: number;
  /** The last answer, reused for the same question and spelling within the same second. */
  latest: { readonly age: number; readonly asked: string; readonly answer: Answer };
}

/** Caches answers of upstreams for their TTL; evicts the least recently used. */
export interface AnswerCache {
  get(question: Question, flags: CacheFlags): { answer: Answer; kind: CacheKind } | null;
  set(question: Question, flags: CacheFlags, answer: Answer): void;
  count(kind: CacheKind): number;
}

export function createAnswerCache(
  limits: CacheLimits,
  now: () => number,
  onEvict: (kind: CacheKind) => void = () => {},
): AnswerCache {
  const entries = new Map<string, Entry>();
  const counts = { success: 0, denial: 0 };
  let bytes = 0;

  function remove(key: string, entry: Entry): void {
    entries.delete(key);
    counts[entry.kind]--;
    bytes -= entry.bytes;
  }

  return {
    get(question, flags) {
      const key = cacheKey(question, flags);
      const entry = entries.get(key);
      if (!entry) return null;
      const time = now();
      if (time >= entry.expires) {
        remove(key, entry);
        return null;
      }
      entries.delete(key);
      entries.set(key, entry);
      const age = Math.floor((time - entry.stored) / 1000);
      const { latest } = entry;
      if (latest.age !== age || latest.asked !== question.name)
        entry.latest = { age, asked: question.name, answer: aged(entry.answer, age, question.name) };
      return { answer: entry.latest.answer, kind: entry.kind };
    },
    set(question, flags, answer) {
      const ttl = cacheSeconds(question.type, answer, limits);
      if (ttl <= 0) return;
      const key = cacheKey(question, flags);
      const known = entries.get(key);
      if (known) remove(key, known);
      const stored = now();
      const kind: CacheKind = answer.answers.length > 0 ? 'success' : 'denial';
      const entry: Entry = {
        answer,
        kind,
        bytes:
          200 + key.length + sizeOf(answer.answers) + sizeOf(answer.authorities) + sizeOf(answer.additionals),
        stored,
        expires: stored + ttl * 1000,
        latest: { age: 0, asked: question.name, answer: aged(answer, 0, question.name) },
      };
      entries.set(key, entry);
      counts[kind]++;
      bytes += entry.bytes;
      for (const [oldest, old] of entries) {
        if (entries.size <= limits.maxEntries && bytes <= limits.maxBytes) break;
        remove(oldest, old);
        onEvict(old.kind);
      }
    },
    count: (kind) => counts[kind],
  };
}

/** Returns how many seconds an answer may be cached: the lowest TTL of its records; for negative answers RFC 2308, 5. */
function cacheSeconds(asked: number, answer: Answer, limits: CacheLimits): number {
  switch (answer.rcode) {
    case RCODE.SERVFAIL:
      return FAILURE_TTL;
    case RCODE.NOERROR:
    case RCODE.NXDOMAIN:
      break;
    default:
      return 0;
  }
  if (
    answer.rcode === RCODE.NOERROR &&
    answer.answers.some((record) => record.type !== TYPE.CNAME || asked === TYPE.CNAME)
  ) {
    const records = [...answer.answers, ...answer.authorities, ...answer.additionals];
    return Math.min(limits.maxTtl, ...records.map((record) => record.ttl));
  }
  const soa = answer.authorities.find((record) => record.type === TYPE.SOA);
  const negative =
    soa && 'primary' in soa.data && !(soa.data instanceof Uint8Array)
      ? Math.min(soa.ttl, soa.data.minimum)
      : FAILURE_TTL;
  return Math.min(limits.maxNegativeTtl, negative, ...answer.answers.map((record) => record.ttl));
}

const cacheKey = (question: Question, flags: CacheFlags): string =>
  `${question.type} ${flags.dnssecOk ? 1 : 0}${flags.checkingDisabled ? 1 : 0} ${question.name.toLowerCase()}`;

/** Returns the answer `seconds` later, with the name spelled as in the new question. */
function aged(answer: Answer, seconds: number, asked: string): Answer {
  const lower = asked.toLowerCase();
  const age = (records: readonly ResourceRecord[]) =>
    records.map((record) => ({
      ...record,
      name: record.name !== asked && record.name.toLowerCase() === lower ? asked : record.name,
      ttl: Math.max(0, record.ttl - seconds),
    }));
  return {
    ...answer,
    answers: age(answer.answers),
    authorities: age(answer.authorities),
    additionals: age(answer.additionals),
  };
}

function sizeOf(records: readonly ResourceRecord[]): number {
  let bytes = 0;
  for (const { name, data } of records) {
    bytes += 150 + name.length + (data instanceof Uint8Array ? data.length : 300);
  }
  return bytes;
}

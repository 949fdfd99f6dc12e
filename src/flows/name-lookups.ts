import { decodeMessage } from '../dns/decode.ts';
import { type Message, RCODE, rcodeName, TYPE, typeName } from '../dns/message.ts';
import { formatAddress, hostPort, type SocketAddress } from '../lib/address.ts';

/** A client's lookup of one name: all questions of its search path, for all record types. */
export interface NameLookup {
  readonly client: SocketAddress;
  readonly server: SocketAddress;
  /** The name that answered; else the last one that was asked for. */
  readonly name: string;
  /** "A", "AAAA", … */
  readonly types: readonly string[];
  /** Addresses and names that came back. */
  readonly answers: readonly string[];
  /** "NOERROR", "NXDOMAIN", …; null: no answer came. */
  readonly rcode: string | null;
  /** The other names of the search path that were asked for before, in this order. */
  readonly tried: readonly string[];
  /** How many questions were sent. */
  readonly questions: number;
  /** Microseconds from the first question to the last answer; of a lookup that is repeated, those of the first time. */
  readonly micros: number;
  /** When the first question was seen, in nanoseconds since 1970. */
  readonly beganNs: bigint;
  /** Why no answer comes; null: one came, or no reason is known. */
  readonly reason: string | null;
}

/** Follows the DNS questions of a node's clients by their packets. */
export interface NameLookups {
  /** A datagram from or to port 53. */
  datagram(source: SocketAddress, destination: SocketAddress, payload: Uint8Array, timeNs: bigint): void;
  /** Forgets all lookups: some of their packets were not read. */
  clear(): void;
  /** Reports the lookups that have ended. */
  expire(nowNs: bigint): void;
}

interface Asked {
  readonly lookup: Followed;
  /** An answer was seen, at the first of several devices. */
  isAnswered: boolean;
}

interface Followed {
  /** Why no answer comes; null: not asked yet, or no reason is known. */
  reason: string | null;
  isReasonAsked: boolean;
  readonly client: SocketAddress;
  readonly server: SocketAddress;
  readonly beganNs: bigint;
  lastNs: bigint;
  answeredNs: bigint | null;
  /** The names that the program may have asked for, as far as the questions show. */
  bases: ReadonlySet<string>;
  readonly names: string[];
  readonly types: Set<string>;
  /** "NAME TYPE" of each question. */
  readonly asks: Set<string>;
  /** One of the questions was sent again. */
  isRepeated: boolean;
  readonly answers: Set<string>;
  found: string | null;
  rcode: number | null;
  questions: number;
  pending: number;
}

const DNS_PORT = 53;
/** How long the next question of a search path may take. */
const IDLE_NS = 300_000_000n;
/** A name server of the cluster answers within milliseconds: of a later one it is asked whether it may. */
const LATE_NS = 200_000_000n;
/** Resolvers ask again after five seconds (resolv.conf(5)). */
export const UNANSWERED_NS = 5_000_000_000n;
/** A client that repeats a lookup without a pause has a line for each such period. */
const MAX_FOLDED_NS = 2_000_000_000n;
const MAX_QUESTIONS = 16_384;
const MAX_ANSWERS = 8;

/** `domain`: of the cluster. `reasonOf`: why a server's answers do not reach a client, or its questions the server; null: they may. */
export function createNameLookups(
  domain: string,
  report: (lookup: NameLookup) => void,
  reasonOf: (client: SocketAddress, server: SocketAddress) => string | null = () => null,
): NameLookups {
  const asked = new Map<string, Asked>();
  /** The lookups that have not ended, by the client's address. */
  const current = new Map<string, Followed[]>();

  const question = (client: SocketAddress, server: SocketAddress, message: Message, timeNs: bigint) => {
    const [first] = message.questions;
    const key = keyOf(client, message);
    if (!first || asked.has(key) || asked.size >= MAX_QUESTIONS) return;
    const name = first.name.toLowerCase();
    const all = current.get(client.ip) ?? [];
    let lookup = all.find((one) => continues(one, name, domain));
    if (lookup) {
      const bases = basesOf(name, domain);
      const shared = [...lookup.bases].filter((base) => bases.has(base));
      if (shared.length > 0) lookup.bases = new Set(shared);
    } else {
      const times = { beganNs: timeNs, lastNs: timeNs, answeredNs: null };
      const counts = {
        found: null,
        rcode: null,
        questions: 0,
        pending: 0,
        reason: null,
        isReasonAsked: false,
      };
      const sets = { types: new Set<string>(), asks: new Set<string>(), answers: new Set<string>() };
      const bases = basesOf(name, domain);
      lookup = { client, server, ...times, bases, names: [], ...sets, isRepeated: false, ...counts };
      current.set(client.ip, [...all, lookup]);
    }
    lookup.questions++;
    lookup.pending++;
    lookup.lastNs = timeNs;
    const ask = `${name} ${first.type}`;
    if (lookup.asks.has(ask)) lookup.isRepeated = true;
    lookup.asks.add(ask);
    lookup.types.add(typeName(first.type));
    if (!lookup.names.includes(name)) lookup.names.push(name);
    asked.set(key, { lookup, isAnswered: false });
  };
  const answer = (client: SocketAddress, message: Message, timeNs: bigint) => {
    const one = asked.get(keyOf(client, message));
    if (!one || one.isAnswered) return;
    one.isAnswered = true;
    const { lookup } = one;
    lookup.pending--;
    lookup.lastNs = timeNs;
    if (!lookup.isRepeated || lookup.answeredNs === null) lookup.answeredNs = timeNs;
    if (lookup.rcode !== RCODE.NOERROR || message.rcode === RCODE.NOERROR) lookup.rcode = message.rcode;
    for (const text of answersOf(message)) if (lookup.answers.size < MAX_ANSWERS) lookup.answers.add(text);
    if (message.answers.length > 0) lookup.found = message.questions[0]?.name.toLowerCase() ?? null;
  };
  return {
    datagram(source, destination, payload, timeNs) {
      const message = decodeMessage(payload);
      if (!message) return;
      if (message.response && source.port === DNS_PORT) answer(destination, message, timeNs);
      if (!message.response && destination.port === DNS_PORT) question(source, destination, message, timeNs);
    },
    clear() {
      asked.clear();
      current.clear();
    },
    expire(nowNs) {
      for (const [ip, lookups] of current) {
        const kept = lookups.filter((one) => {
          const idleNs = nowNs - one.lastNs;
          const ageNs = nowNs - one.beganNs;
          if (one.pending > 0 && one.answeredNs === null && !one.isReasonAsked && ageNs > LATE_NS) {
            one.isReasonAsked = true;
            one.reason = reasonOf(one.client, one.server);
            // At once: what is denied is not answered later.
            if (one.reason !== null) report(reportOf(one, nowNs));
          }
          const hasEnded = one.pending === 0 && (idleNs > IDLE_NS || ageNs > MAX_FOLDED_NS);
          if (!hasEnded && idleNs < UNANSWERED_NS && ageNs < 2n * UNANSWERED_NS) return true;
          if (one.reason === null || one.answeredNs !== null) report(reportOf(one, nowNs));
          return false;
        });
        if (kept.length > 0) current.set(ip, kept);
        else current.delete(ip);
      }
      for (const [key, { lookup }] of asked)
        if (nowNs - lookup.lastNs > UNANSWERED_NS || lookup.pending <= 0) asked.delete(key);
    },
  };
}

/**
 * Returns the names that a resolver may have been asked for when it sends this name: it appends the parts of its search path
 * ("lab.svc.cluster.local", "svc.cluster.local", "cluster.local") one after the other.
 */
function basesOf(name: string, domain: string): Set<string> {
  const bases = new Set([name]);
  const inDomain = name.endsWith(`.${domain}`) ? name.slice(0, -domain.length - 1) : null;
  if (inDomain === null) return bases;
  bases.add(inDomain);
  const inServices = inDomain.endsWith('.svc') ? inDomain.slice(0, -'.svc'.length) : null;
  if (inServices === null) return bases;
  bases.add(inServices);
  const dot = inServices.lastIndexOf('.');
  if (dot > 0) bases.add(inServices.slice(0, dot));
  return bases;
}

/** Whether a question belongs to a lookup: one of its names, or the next name of its search path. */
function continues({ names, bases, rcode, found }: Followed, name: string, domain: string): boolean {
  const last = names.at(-1) ?? '';
  if (names.includes(name)) return true;
  // The next name is asked for when the last one was not found.
  if (rcode === null || found !== null) return false;
  if (last.startsWith(`${name}.`)) return true;
  // The search path may have domains of the machine too.
  if (names.length > 1 && [...bases].some((base) => name.startsWith(`${base}.`))) return true;
  return [...basesOf(name, domain)].some((base) => bases.has(base));
}

function reportOf(one: Followed, nowNs: bigint): NameLookup {
  const { client, server, names, types, answers, found, rcode, questions, beganNs } = one;
  const name = found ?? names.at(-1) ?? '';
  return {
    client,
    server,
    name,
    types: [...types],
    answers: [...answers],
    rcode: rcode === null ? null : rcodeName(rcode),
    tried: names.filter((other) => other !== name),
    questions,
    micros: Number(((one.answeredNs ?? nowNs) - beganNs) / 1000n),
    beganNs,
    reason: one.answeredNs === null ? one.reason : null,
  };
}

function answersOf({ answers }: Message): string[] {
  return answers.flatMap(({ type, data }) => {
    if (data instanceof Uint8Array) return type === TYPE.A || type === TYPE.AAAA ? formatAddress(data) : [];
    return 'target' in data ? data.target : [];
  });
}

const keyOf = (client: SocketAddress, { id, questions }: Message): string =>
  `${hostPort(client)} ${id} ${questions[0]?.type} ${questions[0]?.name}`;

import { formatAddress } from '../lib/address.ts';
import { type Answer, CLASS_IN, type Name, type Question, RCODE, TYPE } from './message.ts';

/** What has to happen before answers to some clients leave. */
export interface AnswerHold {
  /** Returns the client with this source (`sourceKey`) if its answers are held; asked for each query. */
  clientOf(source: string | number): HeldClient | undefined;
}

export interface HeldClient {
  /**
   * Returns the answer that may leave now, or later; null: none, so that the client asks again. `charge`: counts more queries for
   * the client. Must not throw or reject.
   */
  beforeAnswer(
    question: Question,
    answer: Answer,
    charge: (queries: number) => void,
  ): Answer | null | Promise<Answer | null>;
}

/** Aliases that are followed in an answer. */
const MAX_ALIASES = 16;

/** The addresses that a client takes from an answer. */
export interface AnsweredAddresses {
  /** Canonical, each once. */
  readonly addresses: readonly string[];
  /** The least of the records that lead to them, in seconds. */
  readonly ttl: number;
}

/** Returns the addresses of the question's name in an answer, behind its aliases; those of other names are left out. */
export function answeredAddresses(question: Question, { rcode, answers }: Answer): AnsweredAddresses {
  const none = { addresses: [], ttl: 0 };
  if (rcode !== RCODE.NOERROR || (question.type !== TYPE.A && question.type !== TYPE.AAAA)) return none;
  const length = question.type === TYPE.A ? 4 : 16;
  const aliases = new Map<Name, { readonly target: Name; readonly ttl: number }>();
  for (const { type, name, ttl, data } of answers) {
    if (type === TYPE.CNAME && !(data instanceof Uint8Array) && 'target' in data)
      aliases.set(name.toLowerCase(), { target: data.target.toLowerCase(), ttl });
  }
  let name = question.name.toLowerCase();
  let ttl = Number.POSITIVE_INFINITY;
  for (let hops = 0; hops < MAX_ALIASES; hops++) {
    const alias = aliases.get(name);
    if (!alias) break;
    name = alias.target;
    ttl = Math.min(ttl, alias.ttl);
  }
  const addresses = new Set<string>();
  for (const record of answers) {
    const { data } = record;
    if (record.type !== question.type || record.class !== CLASS_IN || record.name.toLowerCase() !== name)
      continue;
    if (!(data instanceof Uint8Array) || data.length !== length) continue;
    addresses.add(formatAddress(data));
    ttl = Math.min(ttl, record.ttl);
  }
  return addresses.size === 0 ? none : { addresses: [...addresses], ttl };
}

/** Returns an answer in which no TTL is longer. */
export function withMaxTtl(answer: Answer, seconds: number): Answer {
  if (answer.answers.every(({ ttl }) => ttl <= seconds)) return answer;
  return {
    ...answer,
    answers: answer.answers.map((one) => (one.ttl <= seconds ? one : { ...one, ttl: seconds })),
  };
}

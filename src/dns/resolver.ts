import type { Forwarder } from './forwarder.ts';
import { type Answer, CLASS_IN, emptyAnswer, type Name, type Query, RCODE, TYPE } from './message.ts';
import type { Zone } from './zone.ts';
import type { ZoneAnswer } from './zone-answer.ts';

/** The maximum number of aliases followed for one question, for ExternalName Services that refer to each other. */
const MAX_ALIASES = 8;

/** An answer and its source, named like CoreDNS's plugins in metrics. */
export interface Resolution {
  readonly answer: Answer;
  readonly plugin: 'kubernetes' | 'forward' | '';
}

/** RFC 8482: the answer to ANY, so that a small question does not get a large answer. Data: two character strings. */
const HINFO = Buffer.from('\x07RFC8482\x00', 'latin1');

/** Answers queries from the zone and, for everything outside it, through the forwarder. */
export function createResolver(
  zone: Zone,
  forwarder: Forwarder | null,
): (query: Query) => Resolution | Promise<Resolution> {
  function forward(query: Query, name: Name): Answer | Promise<Answer> {
    if (!forwarder) return emptyAnswer(RCODE.REFUSED);
    return forwarder.resolve({
      question: { ...query.question, name },
      dnssecOk: query.edns?.dnssecOk ?? false,
      checkingDisabled: query.checkingDisabled,
    });
  }

  /** Appends the records of the alias at the end of `answer`. */
  async function follow(query: Query, first: ZoneAnswer): Promise<Answer> {
    let answer: ZoneAnswer = first;
    for (let hops = 0; answer.alias !== null && hops < MAX_ALIASES; hops++) {
      const target = answer.alias;
      const own = zone.lookup(target, query.question.type);
      const next = own ?? (forwarder ? await forward(query, target) : null);
      if (!next) break;
      answer = {
        ...answer,
        rcode: next.rcode,
        answers: [...answer.answers, ...next.answers],
        authorities: next.answers.length === 0 ? next.authorities : [],
        alias: own?.alias ?? null,
      };
    }
    return answer;
  }

  return (query) => {
    const { name, type } = query.question;
    if (query.question.class !== CLASS_IN || type === TYPE.AXFR || type === TYPE.IXFR) {
      return { answer: emptyAnswer(RCODE.REFUSED), plugin: '' };
    }
    if (type === TYPE.ANY) return { answer: anyAnswer(name), plugin: '' };
    const own = zone.lookup(name.toLowerCase(), type, name);
    if (own) {
      if (own.alias === null) return { answer: own, plugin: 'kubernetes' };
      return follow(query, own).then((answer) => ({ answer, plugin: 'kubernetes' }));
    }
    const answer = forward(query, name);
    if (!(answer instanceof Promise)) return { answer, plugin: 'forward' };
    return answer.then((resolved) => ({ answer: resolved, plugin: 'forward' }));
  };
}

function anyAnswer(name: Name): Answer {
  return {
    ...emptyAnswer(RCODE.NOERROR),
    answers: [{ name, type: TYPE.HINFO, class: CLASS_IN, ttl: 8482, data: HINFO }],
  };
}

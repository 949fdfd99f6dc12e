import { messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import type { AnswerHold } from './answer-hold.ts';
import { decodeHeader, decodeQuery } from './decode.ts';
import { encodeMessage, MAX_MESSAGE_BYTES } from './encode.ts';
import { type Answer, emptyAnswer, type Header, type Query, type Question, RCODE } from './message.ts';
import type { DnsMetrics, Transport } from './metrics.ts';
import type { Resolution } from './resolver.ts';

/** Legitimate queries are shorter, mostly below a hundred bytes; one of 64 KiB has 5,000 records, which are all read. */
export const MAX_QUERY_BYTES = 4096;
/** The maximum UDP answer: passes all common paths unfragmented, and bounds amplification. */
export const MAX_UDP_BYTES = 1232;
/** Twenty records that are read, too. Others are shorter. */
const BYTES_OF_A_QUERY = 256;
/** Of an upstream's answer: reading and keeping them takes as long as answering a query from the zone. */
const RECORDS_OF_A_QUERY = 20;
/** RFC 1035: the maximum for a client without EDNS. */
const MIN_UDP_BYTES = 512;

export interface ResponderOptions {
  readonly resolve: (query: Query) => Resolution | Promise<Resolution>;
  readonly offersRecursion: () => boolean;
  /** The cluster domain; the zone label of metrics. */
  readonly domain: string;
  readonly metrics: DnsMetrics | null;
  readonly logger: Logger;
  /** Absent: no answer waits for anything. */
  readonly hold?: AnswerHold | undefined;
}

/**
 * Returns the bytes of the response to a request; null: it must not be answered. Never throws or rejects. `charge` is told how many
 * more queries the request and its answer count for. `source`: the client, see `sourceKey`.
 */
export type Responder = (
  bytes: Uint8Array,
  transport: Transport,
  family: 'ipv4' | 'ipv6',
  source: string | number,
  charge?: (queries: number) => void,
) => Buffer | null | Promise<Buffer | null>;

export function createResponder(options: ResponderOptions): Responder {
  const { resolve, offersRecursion, domain, metrics, logger, hold } = options;

  function encode(query: Query, answer: Answer, transport: Transport): Buffer {
    const udpLimit = Math.min(MAX_UDP_BYTES, Math.max(MIN_UDP_BYTES, query.edns?.udpSize ?? 0));
    return encodeMessage(
      {
        header: {
          ...query,
          response: true,
          authoritative: answer.authoritative,
          truncated: false,
          recursionAvailable: offersRecursion(),
          authenticData: answer.authenticData && (query.authenticData || query.edns?.dnssecOk === true),
          rcode: answer.rcode,
        },
        question: query.question,
        answers: answer.answers,
        authorities: answer.authorities,
        additionals: answer.additionals,
        edns: query.edns && { udpSize: MAX_UDP_BYTES, version: 0, dnssecOk: query.edns.dnssecOk },
      },
      transport === 'udp' ? udpLimit : MAX_MESSAGE_BYTES,
    );
  }

  function broke(error: unknown, query: Query): Resolution {
    metrics?.panicked();
    logger.error({ name: query.question.name, error: messageOf(error) }, 'failed to answer a query');
    return { answer: emptyAnswer(RCODE.SERVFAIL), plugin: '' };
  }

  return (bytes, transport, family, source, charge) => {
    if (bytes.length >= BYTES_OF_A_QUERY) charge?.(Math.floor(bytes.length / BYTES_OF_A_QUERY));
    const header = decodeHeader(bytes);
    // Never answer a response: two servers could loop forever.
    if (!header || header.response) return null;
    if (header.opcode !== 0) return refusal(header, RCODE.NOTIMP, null);
    const query = decodeQuery(bytes, header);
    if ('refuse' in query) return refusal(header, query.refuse, query.question);
    const started = performance.now();
    const finish = ({ answer, plugin }: Resolution, isFresh: boolean): Buffer => {
      const response = encode(query, answer, transport);
      const records = isFresh ? answer.answers.length + answer.authorities.length : 0;
      const more = Math.floor(response.length / MAX_UDP_BYTES) + Math.floor(records / RECORDS_OF_A_QUERY);
      if (more > 0) charge?.(more);
      metrics?.served({
        transport,
        family,
        type: query.question.type,
        dnssecOk: query.edns?.dnssecOk ?? false,
        rcode: answer.rcode,
        zone: plugin === 'kubernetes' ? `${domain}.` : '.',
        plugin,
        requestBytes: bytes.length,
        responseBytes: response.length,
        seconds: (performance.now() - started) / 1000,
      });
      return response;
    };
    const finishHeld = (resolution: Resolution, isFresh: boolean): Buffer | null | Promise<Buffer | null> => {
      const client = hold?.clientOf(source);
      if (!client) return finish(resolution, isFresh);
      const leave = (answer: Answer | null) =>
        answer === null ? null : finish({ ...resolution, answer }, isFresh);
      const held = client.beforeAnswer(query.question, resolution.answer, charge ?? free);
      return held instanceof Promise ? held.then(leave) : leave(held);
    };
    try {
      const resolution = resolve(query);
      if (!(resolution instanceof Promise)) return finishHeld(resolution, false);
      return resolution
        .then((found) => finishHeld(found, true))
        .catch((error: unknown) => finish(broke(error, query), false));
    } catch (error) {
      return finish(broke(error, query), false);
    }
  };
}

const free = () => {};

function refusal(header: Header, rcode: number, question: Question | null): Buffer {
  return encodeMessage({
    header: {
      ...header,
      response: true,
      authoritative: false,
      truncated: false,
      recursionAvailable: false,
      authenticData: false,
      rcode,
    },
    question,
    answers: [],
    authorities: [],
    additionals: [],
    edns: rcode > 15 ? { udpSize: MAX_UDP_BYTES, version: 0, dnssecOk: false } : null,
  });
}

import type { Duplex } from 'node:stream';
import type { Clock } from '../../lib/clock.ts';
import { errorCode } from '../../lib/error-codes.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';

/** The largest message, in characters: the addresses of 1,000 pods are 100 kB. */
export const MAX_MESSAGE = 1 << 20;
/** Questions of the other side that are answered at the same time; a node has at most 1,000 pods. */
export const MAX_QUESTIONS = 4096;
/** Bytes that wait for the other side; more only if it does not read. */
export const MAX_UNREAD = 8 << 20;
const MAX_ERROR = 4096;
const CLOSED_HERE = 'this side closed it';
const CLOSED_THERE = 'the other side closed it';
const SHOWN = 80;

/** One line of a link. `id`: a number that the asking side has chosen. */
export type Message =
  | { readonly kind: 'question'; readonly id: number; readonly name: string; readonly body: unknown }
  | { readonly kind: 'answer'; readonly id: number; readonly body: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly message: string; readonly code: string }
  | { readonly kind: 'notice'; readonly name: string; readonly body: unknown };

const KINDS: readonly string[] = ['question', 'answer', 'failure', 'notice'];

/** Reads one line. Throws FairleadError if it is not a message. */
export function readMessage(line: string): Message {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw malformed(line);
  }
  const { kind, id, name, message, code } = (value ?? {}) as Readonly<Record<string, unknown>>;
  if (typeof kind !== 'string' || !KINDS.includes(kind)) throw malformed(line);
  const isNamed = typeof name === 'string' && name !== '';
  const isNumbered = Number.isSafeInteger(id) && Number(id) >= 0;
  const isWhole =
    kind === 'notice'
      ? isNamed
      : isNumbered &&
        (kind !== 'question' || isNamed) &&
        (kind !== 'failure' || (typeof message === 'string' && typeof code === 'string'));
  if (!isWhole) throw malformed(line);
  return value as Message;
}

const malformed = (line: string) =>
  new FairleadError(`malformed message ${JSON.stringify(line.slice(0, SHOWN))}`, {
    op: 'read a link',
    code: 'bad-request',
  });

export interface LinkOptions {
  /** A stream socket to the other side. */
  readonly socket: Duplex;
  /** Answers a question of the other side. A rejection is its answer, too. */
  readonly answer: (name: string, body: unknown) => Promise<unknown>;
  readonly notice: (name: string, body: unknown) => void;
  readonly clock: Clock;
  readonly logger: Logger;
}

/**
 * A connection between the agent and the pod runtime of a node: JSON lines in both directions, each a question, its answer or
 * a notice. It trusts the other side with nothing: a message that is malformed or too large, too many questions, or a side
 * that does not read, end the link.
 */
export interface Link {
  /**
   * Asks the other side. Rejects with its error, with ETIMEDOUT after `timeoutMs` (null: never), or "ended" with the link. A
   * later answer is dropped.
   */
  ask(name: string, body: unknown, timeoutMs: number | null): Promise<unknown>;
  notify(name: string, body: unknown): void;
  /** Resolves, when the link has ended, to the reason. */
  readonly ended: Promise<string>;
  close(): void;
}

interface Question {
  readonly name: string;
  readonly resolve: (body: unknown) => void;
  readonly reject: (error: Error) => void;
  readonly cancel: () => void;
}

/** Opens this side of a link. */
export function openLink({ socket, answer, notice, clock, logger }: LinkOptions): Link {
  const asked = new Map<number, Question>();
  const ending = Promise.withResolvers<string>();
  let lastId = 0;
  let answering = 0;
  let isOpen = true;
  let rest = '';

  const end = (reason: string) => {
    if (!isOpen) return;
    isOpen = false;
    socket.destroy();
    for (const { name, reject, cancel } of asked.values()) {
      cancel();
      reject(endedError(name, reason));
    }
    asked.clear();
    ending.resolve(reason);
  };
  const send = (message: Message) => {
    if (!isOpen) return;
    socket.write(`${JSON.stringify(message)}\n`);
    if (socket.writableLength > MAX_UNREAD) end('the other side does not read');
  };
  const reply = async ({ id, name, body }: Extract<Message, { kind: 'question' }>) => {
    if (++answering > MAX_QUESTIONS) {
      end('the other side asks too much');
      return;
    }
    try {
      send({ kind: 'answer', id, body: (await answer(name, body)) ?? null });
    } catch (error) {
      const { code } = error as { code?: unknown };
      const message = messageOf(error).slice(0, MAX_ERROR);
      send({ kind: 'failure', id, message, code: typeof code === 'string' ? code : 'EIO' });
    } finally {
      answering--;
    }
  };
  const receive = (message: Message) => {
    switch (message.kind) {
      case 'question':
        void reply(message);
        return;
      case 'notice':
        notice(message.name, message.body);
        return;
      case 'answer':
      case 'failure': {
        const question = asked.get(message.id);
        // It came too late, or was not asked for.
        if (!question) {
          logger.debug({ id: message.id }, 'dropped an answer to no question');
          return;
        }
        asked.delete(message.id);
        question.cancel();
        if (message.kind === 'answer') question.resolve(message.body);
        else question.reject(receivedError(question.name, message));
      }
    }
  };
  const read = (chunk: string) => {
    let start = 0;
    for (let stop = chunk.indexOf('\n'); stop >= 0 && isOpen; stop = chunk.indexOf('\n', start)) {
      const line = rest + chunk.slice(start, stop);
      rest = '';
      start = stop + 1;
      if (line.length > MAX_MESSAGE) end('the other side sent a message that is too large');
      else receive(readMessage(line));
    }
    rest += chunk.slice(start);
    if (rest.length > MAX_MESSAGE) end('the other side sent a message that is too large');
  };
  socket.setEncoding('utf8');
  socket.on('data', (chunk: string) => {
    try {
      if (isOpen) read(chunk);
    } catch (error) {
      end(`the other side sent a ${messageOf(error)}`);
    }
  });
  // A process that is killed with unread messages resets its socket.
  socket.on('error', (error) => end(hasCode(error, 'ECONNRESET', 'EPIPE') ? CLOSED_THERE : messageOf(error)));
  socket.on('end', () => end(CLOSED_THERE));
  socket.on('close', () => end(CLOSED_THERE));

  return {
    ask(name, body, timeoutMs) {
      if (!isOpen) return Promise.reject(endedError(name, 'the link has ended'));
      const id = ++lastId;
      const question = Promise.withResolvers<unknown>();
      const late = () => {
        asked.delete(id);
        question.reject(
          new FairleadError(`${name}: no answer within ${Number(timeoutMs) / 1000} s`, {
            op: name,
            code: 'ETIMEDOUT',
          }),
        );
      };
      const cancel = timeoutMs === null ? () => {} : clock.after(timeoutMs, late);
      asked.set(id, { name, cancel, resolve: question.resolve, reject: question.reject });
      send({ kind: 'question', id, name, body });
      return question.promise;
    },
    notify: (name, body) => send({ kind: 'notice', name, body }),
    ended: ending.promise,
    close: () => end(CLOSED_HERE),
  };
}

/** Reports whether a link ended for this reason without a fault. */
export const isClosed = (reason: string): boolean => reason === CLOSED_HERE || reason === CLOSED_THERE;

const endedError = (name: string, reason: string) =>
  new FairleadError(`${name}: ${reason}`, { op: name, code: 'ended' });

const receivedError = (op: string, { message, code }: Extract<Message, { kind: 'failure' }>) =>
  new FairleadError(message, { op, code: errorCode(code) });

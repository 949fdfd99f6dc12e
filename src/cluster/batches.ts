import { FairleadError } from '../lib/errors.ts';

/** Gathers questions to each place while a request to it is under way, and sends them in one. */
export interface Batches<Q, A> {
  ask(place: string, question: Q): Promise<A>;
}

export interface BatchOptions<Q, A> {
  /** Answers questions in their order; an error is the answer to one of them. */
  readonly send: (place: string, questions: readonly Q[]) => Promise<readonly (A | Error)[]>;
  /** The most questions of one request. */
  readonly max: number;
  /** Calls back when questions of the same moment have been asked. */
  readonly soon: (callback: () => void) => void;
}

interface Waiting<Q, A> {
  readonly question: Q;
  readonly resolve: (answer: A) => void;
  readonly reject: (error: unknown) => void;
}

export function createBatches<Q, A>({ send, max, soon }: BatchOptions<Q, A>): Batches<Q, A> {
  const waiting = new Map<string, Waiting<Q, A>[]>();
  const busy = new Set<string>();
  async function work(place: string): Promise<void> {
    for (;;) {
      const batch = waiting.get(place)?.splice(0, max) ?? [];
      if (batch.length === 0) break;
      try {
        const answers = await send(
          place,
          batch.map(({ question }) => question),
        );
        for (const [index, { resolve, reject }] of batch.entries()) {
          const answer = answers[index];
          if (answer === undefined)
            reject(
              new FairleadError(`${place} left a question without an answer`, {
                op: `ask ${place}`,
                code: 'EPROTO',
              }),
            );
          else if (answer instanceof Error) reject(answer);
          else resolve(answer);
        }
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    busy.delete(place);
    waiting.delete(place);
  }
  return {
    ask: (place, question) =>
      new Promise((resolve, reject) => {
        const queue = waiting.get(place) ?? [];
        queue.push({ question, resolve, reject });
        waiting.set(place, queue);
        if (busy.has(place)) return;
        busy.add(place);
        soon(() => void work(place));
      }),
  };
}

import { Worker } from 'node:worker_threads';
import type { ErrorCode } from '../../lib/error-codes.ts';
import { FairleadError, hasCode, messageOf } from '../../lib/errors.ts';
import type { LayersTask } from '../images/layer-limits.ts';

/** Work on files that pods and images wrote, of any number and depth. */
export type FileTask =
  | LayersTask
  | { readonly kind: 'remove'; readonly path: string }
  | { readonly kind: 'measure'; readonly path: string }
  | { readonly kind: 'give'; readonly path: string; readonly group: number };

export type FileAnswer =
  | { readonly bytes: number }
  | { readonly problem: string; readonly code: ErrorCode; readonly hint?: string };

/** The heap of a thread: it keeps the paths of one layer. */
const MAX_HEAP_MB = 512;

/**
 * Carries out a task in a thread of its own, which takes about 50 ms to start: the event loop serves others meanwhile.
 * Resolves to the number of bytes. Rejects with the task's FairleadError, or "ETIMEDOUT" after `seconds`.
 */
export async function inFileThread(task: FileTask, seconds: number, signal?: AbortSignal): Promise<number> {
  // In the bundle, this code and the thread's are files of one folder.
  const entry = import.meta.url.endsWith('.ts') ? './file-worker.ts' : './file-worker.mjs';
  const worker = new Worker(new URL(entry, import.meta.url), {
    workerData: task,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  });
  const end = Promise.withResolvers<number>();
  const fail = (code: ErrorCode, message: string, more: { cause?: unknown; hint?: string } = {}) =>
    end.reject(new FairleadError(message, { op: `${task.kind} files`, code, ...more }));
  const late = setTimeout(() => fail('ETIMEDOUT', `not finished within ${seconds} s`), seconds * 1000);
  const abort = () => fail('ended', 'the agent ends');
  signal?.addEventListener('abort', abort);
  if (signal?.aborted) abort();
  worker.once('message', (answer: FileAnswer) => {
    if ('bytes' in answer) end.resolve(answer.bytes);
    else fail(answer.code, answer.problem, answer.hint ? { hint: answer.hint } : {});
  });
  worker.once('error', (error) =>
    fail(
      hasCode(error, 'ERR_WORKER_OUT_OF_MEMORY') && task.kind === 'unpack' ? 'image-too-large' : 'EIO',
      `the thread that works on files failed: ${messageOf(error)}`,
      { cause: error },
    ),
  );
  // Without effect after an answer.
  worker.once('exit', (code) => fail('ended', `the thread that works on files ended with code ${code}`));
  try {
    return await end.promise;
  } finally {
    clearTimeout(late);
    signal?.removeEventListener('abort', abort);
    // Until then, the thread may still write.
    await worker.terminate();
  }
}

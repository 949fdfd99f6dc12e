import { Worker } from 'node:worker_threads';
import { createSemaphore } from '../../lib/semaphore.ts';
import { parseYaml, type YamlBody } from './yaml-text.ts';
import type { YamlAnswer } from './yaml-worker.ts';

/** Longer texts are parsed by a thread, which takes about 50 ms to start: the event loop serves other requests meanwhile. */
const MAX_INLINE_LENGTH = 64 * 1024;
const MAX_THREADS = 2;
/** The heap of a thread. A body of 3 MiB, the maximum, needs less than half of it. */
const MAX_HEAP_MB = 512;

/** Parses a YAML text. Rejects with an error that says what is wrong in which line. */
export type YamlReader = (source: string) => Promise<YamlBody>;

export function createYamlReader(): YamlReader {
  const threads = createSemaphore(MAX_THREADS);
  return async (source) =>
    source.length <= MAX_INLINE_LENGTH
      ? parseYaml(source)
      : await threads.run(() => new Promise((resolve, reject) => parseInThread(source, resolve, reject)));
}

function parseInThread(
  source: string,
  resolve: (body: YamlBody) => void,
  reject: (error: unknown) => void,
): void {
  // In the bundle, this code and the thread's are files of one folder.
  const entry = import.meta.url.endsWith('.ts') ? './yaml-worker.ts' : './yaml-worker.mjs';
  const worker = new Worker(new URL(entry, import.meta.url), {
    workerData: source,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  });
  worker.once('message', (answer: YamlAnswer) => {
    if ('body' in answer) resolve(answer.body);
    else reject(new Error(answer.problem));
  });
  worker.once('error', reject);
  // Without effect after an answer.
  worker.once('exit', (code) => reject(new Error(`the thread that parses YAML ended with code ${code}`)));
}

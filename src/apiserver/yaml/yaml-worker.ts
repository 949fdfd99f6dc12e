import { parentPort, workerData } from 'node:worker_threads';
import { messageOf } from '../../lib/errors.ts';
import { parseYaml, type YamlBody } from './yaml-text.ts';

/** The answer of a thread of the YAML reader. */
export type YamlAnswer = { readonly body: YamlBody } | { readonly problem: string };

/** Parses the text that this thread was started with. */
function answer(): YamlAnswer {
  try {
    return { body: parseYaml(workerData as string) };
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

parentPort?.postMessage(answer());

import { parentPort, workerData } from 'node:worker_threads';
import { FairleadError, messageOf } from '../../lib/errors.ts';
import { unpackLayers } from '../images/unpack-layers.ts';
import type { FileAnswer, FileTask } from './file-thread.ts';
import { giveTreeToGroup, measureTree, removeWholeTree } from './whole-tree.ts';

/** Carries out the task that this thread was started with. */
async function answer(): Promise<FileAnswer> {
  const task = workerData as FileTask;
  try {
    switch (task.kind) {
      case 'unpack':
        return { bytes: await unpackLayers(task) };
      case 'remove':
        removeWholeTree(task.path);
        return { bytes: 0 };
      case 'measure':
        return { bytes: measureTree(task.path) };
      case 'give':
        giveTreeToGroup(task.path, task.group);
        return { bytes: 0 };
    }
  } catch (error) {
    const { code, hint } = error instanceof FairleadError ? error : { code: 'EIO' as const, hint: '' };
    return { problem: messageOf(error), code, ...(hint ? { hint } : {}) };
  }
}

parentPort?.postMessage(await answer());

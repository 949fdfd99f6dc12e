import type { ConfigMap } from '../kube/types.ts';
import type { Lesson } from './lesson.ts';

/** The ConfigMap in LEARN_NAMESPACE with the progress: for each lesson that has begun, the number of steps that are done. */
export const PROGRESS = 'progress';
/** In the same ConfigMap: the proxy mode when the first lesson began, for the reset. */
export const FIRST_MODE = 'first-mode';

export interface Progress {
  /** Null: the lesson has not begun. Equal to the number of steps: it is finished. */
  readonly done: number | null;
}

/** Reads the progress in a lesson; a number that the lesson does not have counts as its end. */
export function progressIn(map: ConfigMap | null, { name, steps }: Lesson): Progress {
  const text = map?.data?.[name];
  if (text === undefined || !/^[0-9]{1,3}$/.test(text)) return { done: null };
  return { done: Math.min(Number(text), steps.length) };
}

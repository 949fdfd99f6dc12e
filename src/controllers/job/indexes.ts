import type { Job, Pod } from '../../kube/types.ts';

export const INDEX = 'batch.kubernetes.io/job-completion-index';
/** Number of earlier pod failures of this index, for backoffLimitPerIndex (KEP-3850). */
export const FAILURE_COUNT = 'batch.kubernetes.io/job-index-failure-count';
export const IGNORED_FAILURE_COUNT = 'batch.kubernetes.io/job-index-ignored-failure-count';

export function isIndexed(job: Job): boolean {
  return job.spec?.completionMode === 'Indexed';
}

/** Returns the completion index of a pod; null for a pod without one, or beyond the Job's completions. */
export function indexOf(job: Job, pod: Pod): number | null {
  const text = pod.metadata?.annotations?.[INDEX];
  if (text === undefined || !/^[0-9]+$/.test(text)) return null;
  const index = Number(text);
  return index < (job.spec?.completions ?? 0) ? index : null;
}

/** "1-3,7" → 1, 2, 3, 7; indexes from `limit` on are omitted. */
export function parseIndexes(text: string | undefined, limit: number): Set<number> {
  const indexes = new Set<number>();
  for (const range of (text ?? '').split(',')) {
    if (range === '') continue;
    const [first = 0, last = first] = range.split('-').map(Number);
    for (let index = first; index <= last && index < limit; index++) indexes.add(index);
  }
  return indexes;
}

/** [1, 2, 3, 7] → "1-3,7" */
export function formatIndexes(indexes: Iterable<number>): string {
  const parts: [number, number][] = [];
  for (const index of [...indexes].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else parts.push([index, index]);
  }
  return parts
    .map(([first, last]) =>
      first === last ? `${first}` : last === first + 1 ? `${first},${last}` : `${first}-${last}`,
    )
    .join(',');
}

/** Returns the first `count` indexes that are not done, failed or running. */
export function freeIndexes(job: Job, taken: (index: number) => boolean, count: number): number[] {
  const free: number[] = [];
  for (let index = 0; index < (job.spec?.completions ?? 0) && free.length < count; index++) {
    if (!taken(index)) free.push(index);
  }
  return free;
}

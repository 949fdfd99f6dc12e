import { timestamp } from '../../kube/timestamp.ts';
import type { Job, Pod } from '../../kube/types.ts';
import { same } from '../canonical.ts';
import { claim } from '../ownership.ts';
import { byDeletionRank, isReady, timeOf } from '../pods.ts';
import { conditionsOf, decidedEnding, type Ending, finishedCondition } from './conditions.ts';
import {
  FAILURE_COUNT,
  formatIndexes,
  freeIndexes,
  IGNORED_FAILURE_COUNT,
  indexOf,
  isIndexed,
  parseIndexes,
} from './indexes.ts';
import { finishTime, type IndexFailures, isTracked, jobPod } from './pods.ts';
import { failureVerdict, hasRestartedTooOften, matchedSuccessRule } from './policies.ts';

type Status = NonNullable<Job['status']>;

export interface JobView {
  readonly job: Job;
  /** Pods that it controls or selects, including those being deleted. */
  readonly pods: readonly Pod[];
  readonly now: number;
}

export interface JobPlan {
  readonly adopt: readonly Pod[];
  readonly release: readonly Pod[];
  readonly create: readonly Pod[];
  readonly delete: readonly Pod[];
  /** Pods that the status has counted, or that need not be counted: their finalizer is removed. */
  readonly untrack: readonly Pod[];
  readonly status: Status | null;
  /** Finished, and its time to live has expired. */
  readonly deleteJob: boolean;
  readonly checkAgainIn: number | null;
}

/** The delay before a pod replaces a failed one: 10 s, doubled with each failure, up to 10 minutes (upstream). */
const FIRST_BACKOFF_MS = 10_000;
const MAX_BACKOFF_MS = 600_000;
/** Maximum number of pods created or deleted in one reconcile. */
const MAX_BURST = 500;
const NOTHING = { adopt: [], release: [], create: [], delete: [], untrack: [], deleteJob: false } as const;

/** Computes the next step of a Job. Pure. */
export function reconcileJob(view: JobView): JobPlan {
  const { job, now } = view;
  const { owned, adopt, release } = claim(job, job.spec?.selector, view.pods);
  // An orphan counts from its adoption on.
  const pods = owned;
  const over = finishedCondition(job);
  if (over) return afterEnd(job, pods, over.lastTransitionTime, now);
  const tally = countPods(job, pods);
  const isSuspended = job.spec?.suspend === true;
  const started = job.status?.startTime ?? (isSuspended ? undefined : timestamp(now));
  const deadline = job.spec?.activeDeadlineSeconds;
  const deadlineIn =
    deadline === undefined || started === undefined ? null : timeOf(started) + deadline * 1000 - now;
  const isLate = deadlineIn !== null && deadlineIn <= 0 && !isSuspended;
  const ending = decidedEnding(job) ?? endingOf(job, pods, tally, isLate);
  const steps =
    job.metadata?.deletionTimestamp === undefined
      ? podSteps(job, pods, tally, ending !== null || isSuspended, now)
      : { create: [], delete: [], waitMs: null };
  const { active, terminating, uncounted } = tally;
  const remaining = active.filter((pod) => !steps.delete.includes(pod));
  const isOver =
    ending !== null &&
    active.length === 0 &&
    terminating.length === 0 &&
    uncounted.succeeded.length + uncounted.failed.length === 0;
  const status: Status = {
    ...statusWithout(job),
    conditions: conditionsOf(job, { ending, isOver, isSuspended }, now),
    // A resumed Job gets a new start time.
    ...(started === undefined || (isSuspended && !ending) ? {} : { startTime: started }),
    ...(isOver && ending?.type === 'Complete' ? { completionTime: timestamp(now) } : {}),
    ...(isIndexed(job) && tally.done.size > 0 ? { completedIndexes: formatIndexes(tally.done) } : {}),
    ...(job.spec?.backoffLimitPerIndex === undefined
      ? {}
      : { failedIndexes: formatIndexes(tally.failedIndexes) }),
    active: remaining.length,
    ready: remaining.filter(isReady).length,
    terminating: terminating.length + active.length - remaining.length,
    succeeded: tally.succeeded,
    failed: tally.failed,
    uncountedTerminatedPods: {
      ...(uncounted.succeeded.length > 0 ? { succeeded: uncounted.succeeded } : {}),
      ...(uncounted.failed.length > 0 ? { failed: uncounted.failed } : {}),
    },
  };
  if (status.conditions?.length === 0) delete status.conditions;
  const waits = [isSuspended ? null : deadlineIn, steps.waitMs].filter((wait) => wait !== null && wait > 0);
  return {
    ...NOTHING,
    adopt,
    release,
    create: steps.create,
    delete: steps.delete,
    untrack: tally.untrack,
    status: same(status, job.status) ? null : status,
    checkAgainIn: waits.length > 0 ? Math.min(...(waits as number[])) : null,
  };
}

/** Returns the status without the fields that are recomputed each time. */
function statusWithout(job: Job): Status {
  const {
    conditions: _conditions,
    startTime: _started,
    completedIndexes: _done,
    failedIndexes: _failed,
    ...rest
  } = job.status ?? {};
  return rest;
}

/** Releases the pods of a finished Job, and deletes it when its time to live expires (KEP-592). */
function afterEnd(job: Job, pods: readonly Pod[], endedAt: string | undefined, now: number): JobPlan {
  const ttl = job.spec?.ttlSecondsAfterFinished;
  const left = ttl === undefined ? null : timeOf(endedAt) + ttl * 1000 - now;
  return {
    ...NOTHING,
    delete: pods.filter(isActive),
    untrack: pods.filter(isTracked),
    status: null,
    deleteJob: left !== null && left <= 0 && job.metadata?.deletionTimestamp === undefined,
    checkAgainIn: left !== null && left > 0 ? left : null,
  };
}

function isActive(pod: Pod): boolean {
  return !hasEnded(pod) && pod.metadata?.deletionTimestamp === undefined;
}

/** Reports whether a pod has ended. A pod that its node has given up will not report again: only finalizers keep it. */
function hasEnded({ metadata, status }: Pod): boolean {
  if (status?.phase === 'Succeeded' || status?.phase === 'Failed') return true;
  return metadata?.deletionTimestamp !== undefined && metadata.deletionGracePeriodSeconds === 0;
}

/** Reports whether failed pods are replaced only after they have ended, not while they terminate (KEP-3939). */
function waitsForEnd(job: Job): boolean {
  return job.spec?.podReplacementPolicy === 'Failed' || job.spec?.podFailurePolicy !== undefined;
}

function hasFailed(job: Job, pod: Pod): boolean {
  if (pod.status?.phase === 'Succeeded') return false;
  return hasEnded(pod) || (!waitsForEnd(job) && pod.metadata?.deletionTimestamp !== undefined);
}

interface Tally {
  readonly active: readonly Pod[];
  readonly terminating: readonly Pod[];
  /** The counters of the status: pods whose finalizer is removed. */
  readonly succeeded: number;
  readonly failed: number;
  /** Pods that ended, and whose finalizer must be removed before they are counted. */
  readonly uncounted: { readonly succeeded: string[]; readonly failed: string[] };
  /** All that succeeded or failed, counted or not. */
  readonly allSucceeded: number;
  readonly allFailed: number;
  readonly done: ReadonlySet<number>;
  readonly failedIndexes: ReadonlySet<number>;
  /** For backoffLimitPerIndex: the number of failures of an index, and the time of the last one. */
  readonly failures: ReadonlyMap<number, IndexFailures & { readonly at: number }>;
  readonly untrack: readonly Pod[];
  /** Message of the podFailurePolicy rule that fails the Job. */
  readonly failJob: string | null;
}

function countPods(job: Job, pods: readonly Pod[]): Tally {
  const indexed = isIndexed(job);
  const limit = job.spec?.completions ?? 0;
  const stored = job.status?.uncountedTerminatedPods ?? {};
  const tracked = new Map(pods.filter(isTracked).map((pod) => [pod.metadata?.uid ?? '', pod]));
  // Pods that have lost their finalizer or are gone have been counted.
  const still = (uids: readonly string[] | undefined) => (uids ?? []).filter((uid) => tracked.has(uid));
  const uncounted = { succeeded: still(stored.succeeded), failed: still(stored.failed) };
  const moved = (before: readonly string[] | undefined, after: readonly string[]) =>
    (before?.length ?? 0) - after.length;
  const failed = (job.status?.failed ?? 0) + moved(stored.failed, uncounted.failed);
  let succeeded = (job.status?.succeeded ?? 0) + moved(stored.succeeded, uncounted.succeeded);
  const storedDone = indexed ? parseIndexes(job.status?.completedIndexes, limit) : new Set<number>();
  const done = new Set(storedDone);
  const untrack: Pod[] = [...uncounted.succeeded, ...uncounted.failed].flatMap(
    (uid) => tracked.get(uid) ?? [],
  );
  const known = new Set([...uncounted.succeeded, ...uncounted.failed]);
  const perIndex = job.spec?.backoffLimitPerIndex !== undefined;
  const failedIndexes = new Set(perIndex ? parseIndexes(job.status?.failedIndexes, limit) : []);
  const failures = new Map<number, IndexFailures & { at: number }>();
  const lastFailed = newestByIndex(job, pods);
  let failJob: string | null = null;
  let delayed = 0;
  for (const pod of tracked.values()) {
    const index = indexOf(job, pod);
    const uid = pod.metadata?.uid ?? '';
    if (pod.status?.phase === 'Succeeded') {
      if (!indexed) {
        if (!known.has(uid)) uncounted.succeeded.push(uid);
      } else {
        if (index !== null) done.add(index);
        if (index === null || storedDone.has(index)) untrack.push(pod);
      }
      continue;
    }
    if (indexed && index === null) {
      if (hasEnded(pod) || pod.metadata?.deletionTimestamp !== undefined) untrack.push(pod);
      continue;
    }
    if (!hasFailed(job, pod)) {
      if (job.metadata?.deletionTimestamp !== undefined && pod.metadata?.deletionTimestamp !== undefined) {
        untrack.push(pod);
      }
      continue;
    }
    const verdict = failureVerdict(job, pod);
    if (verdict.action === 'FailJob') failJob ??= verdict.message;
    if (perIndex && index !== null) {
      const isCounted = verdict.action !== 'Ignore';
      const before = (key: string) => Number(pod.metadata?.annotations?.[key] ?? 0);
      const counted = before(FAILURE_COUNT) + (isCounted ? 1 : 0);
      const ignored = before(IGNORED_FAILURE_COUNT) + (isCounted ? 0 : 1);
      const isLast = lastFailed.get(index) === pod;
      if (isLast) failures.set(index, { counted, ignored, at: finishTime(pod) });
      if (verdict.action === 'FailIndex' || counted > (job.spec?.backoffLimitPerIndex ?? 0)) {
        if (!done.has(index)) failedIndexes.add(index);
      }
      // Its failure count is needed until the next pod has it.
      if (
        isLast &&
        !failedIndexes.has(index) &&
        job.metadata?.deletionTimestamp === undefined &&
        decidedEnding(job) === null
      ) {
        if (isCounted && !known.has(uid)) delayed++;
        continue;
      }
    }
    if (verdict.action === 'Ignore') untrack.push(pod);
    else if (!known.has(uid)) uncounted.failed.push(uid);
  }
  if (indexed) succeeded = done.size;
  return {
    active: pods.filter(isActive),
    terminating: pods.filter((pod) => pod.metadata?.deletionTimestamp !== undefined && !hasEnded(pod)),
    succeeded,
    failed,
    uncounted,
    allSucceeded: indexed ? done.size : succeeded + uncounted.succeeded.length,
    allFailed: failed + uncounted.failed.length + delayed,
    done,
    failedIndexes,
    failures,
    untrack: [...new Set(untrack)],
    failJob,
  };
}

/** Returns the newest pod of each index, if it failed: a later one would contain its count already. */
function newestByIndex(job: Job, pods: readonly Pod[]): Map<number, Pod> {
  const newest = new Map<number, Pod>();
  const number = (pod: Pod, key: string) => Number(pod.metadata?.annotations?.[key] ?? 0);
  const rank = (pod: Pod) => number(pod, FAILURE_COUNT) + number(pod, IGNORED_FAILURE_COUNT);
  for (const pod of pods) {
    const index = indexOf(job, pod);
    if (index === null) continue;
    const other = newest.get(index);
    if (
      !other ||
      rank(pod) > rank(other) ||
      (rank(pod) === rank(other) && finishTime(pod) > finishTime(other))
    ) {
      newest.set(index, pod);
    }
  }
  return newest;
}

function endingOf(job: Job, pods: readonly Pod[], tally: Tally, isLate: boolean): Ending | null {
  const fail = (reason: string, message: string): Ending => ({ type: 'Failed', reason, message });
  const { completions, backoffLimit = 6, maxFailedIndexes, backoffLimitPerIndex } = job.spec ?? {};
  const { active, allSucceeded, allFailed, done, failedIndexes, failJob } = tally;
  if (failJob !== null) return fail('PodFailurePolicy', failJob);
  if (allFailed > backoffLimit || hasRestartedTooOften(job, pods)) {
    return fail('BackoffLimitExceeded', 'Job has reached the specified backoff limit');
  }
  if (isLate) return fail('DeadlineExceeded', 'Job was active longer than specified deadline');
  if (isIndexed(job) && backoffLimitPerIndex !== undefined) {
    if (maxFailedIndexes !== undefined && failedIndexes.size > maxFailedIndexes) {
      const message = 'Job has exceeded the specified maximal number of failed indexes';
      return fail('MaxFailedIndexesExceeded', message);
    }
    if (failedIndexes.size > 0 && failedIndexes.size + done.size >= (completions ?? 0)) {
      return fail('FailedIndexes', 'Job has failed indexes');
    }
  }
  const rule = isIndexed(job) ? matchedSuccessRule(job, done) : null;
  if (rule !== null) {
    return { type: 'Complete', reason: 'SuccessPolicy', message: `Matched rules at index ${rule}` };
  }
  const isComplete =
    completions === undefined ? allSucceeded > 0 && active.length === 0 : allSucceeded >= completions;
  if (!isComplete || (completions === undefined && tally.terminating.length > 0)) return null;
  const message = 'Reached expected number of succeeded pods';
  return { type: 'Complete', reason: 'CompletionsReached', message };
}

interface PodSteps {
  readonly create: readonly Pod[];
  readonly delete: readonly Pod[];
  /** Milliseconds until failed pods may be replaced. */
  readonly waitMs: number | null;
}

/** Computes the pods to create or delete; never both at once, as upstream. */
function podSteps(job: Job, pods: readonly Pod[], tally: Tally, stops: boolean, now: number): PodSteps {
  const { active, done, failedIndexes, terminating } = tally;
  const indexed = isIndexed(job);
  if (stops) return { create: [], delete: active.slice(0, MAX_BURST), waitMs: null };
  const surplus = indexed ? surplusByIndex(job, active, done) : [];
  const useful = active.length - surplus.length;
  const { completions, parallelism = 1 } = job.spec ?? {};
  const left = (completions ?? 0) - tally.allSucceeded - (indexed ? failedIndexes.size : 0);
  const wanted =
    completions === undefined
      ? tally.allSucceeded > 0
        ? Math.min(useful, parallelism)
        : parallelism
      : Math.min(parallelism, Math.max(0, left));
  if (useful > wanted || surplus.length > 0) {
    const others = active.filter((pod) => !surplus.includes(pod));
    const extra = byDeletionRank(others).slice(0, Math.max(0, useful - wanted));
    return { create: [], delete: [...surplus, ...extra].slice(0, MAX_BURST), waitMs: null };
  }
  const going = waitsForEnd(job) ? terminating.length : 0;
  const missing = Math.min(MAX_BURST, wanted - useful - going);
  if (missing <= 0) return { create: [], delete: [], waitMs: null };
  if (!indexed) {
    const waitMs = backoffLeft(failuresSinceSuccess(pods), now);
    if (waitMs > 0) return { create: [], delete: [], waitMs };
    return {
      create: Array.from({ length: missing }, () => jobPod(job, null, null)),
      delete: [],
      waitMs: null,
    };
  }
  const perIndex = job.spec?.backoffLimitPerIndex !== undefined;
  const common = perIndex ? 0 : backoffLeft(failuresSinceSuccess(pods), now);
  if (common > 0) return { create: [], delete: [], waitMs: common };
  const busy = new Set(active.map((pod) => indexOf(job, pod)));
  if (going > 0) for (const pod of terminating) busy.add(indexOf(job, pod));
  const isTaken = (index: number) => done.has(index) || failedIndexes.has(index) || busy.has(index);
  const create: Pod[] = [];
  let waitMs: number | null = null;
  for (const index of freeIndexes(job, isTaken, Number.POSITIVE_INFINITY)) {
    if (create.length >= missing) break;
    const failures = tally.failures.get(index) ?? null;
    const wait = failures
      ? backoffLeft({ count: failures.counted + failures.ignored, last: failures.at }, now)
      : 0;
    if (wait > 0) waitMs = waitMs === null ? wait : Math.min(waitMs, wait);
    else create.push(jobPod(job, index, perIndex ? (failures ?? { counted: 0, ignored: 0 }) : null));
  }
  return { create, delete: [], waitMs };
}

/** Returns pods whose index another pod also has, is completed, or is beyond the completions. */
function surplusByIndex(job: Job, active: readonly Pod[], done: ReadonlySet<number>): Pod[] {
  const byIndex = new Map<number, Pod[]>();
  const surplus: Pod[] = [];
  for (const pod of active) {
    const index = indexOf(job, pod);
    if (index === null || done.has(index)) surplus.push(pod);
    else byIndex.set(index, [...(byIndex.get(index) ?? []), pod]);
  }
  for (const pods of byIndex.values()) surplus.push(...byDeletionRank(pods).slice(0, -1));
  return surplus;
}

/** Returns the number of failures after the last success, and the time of the last one. */
function failuresSinceSuccess(pods: readonly Pod[]): { count: number; last: number } {
  const times = (phase: string) => pods.filter(({ status }) => status?.phase === phase).map(finishTime);
  const success = Math.max(0, ...times('Succeeded'));
  const failures = times('Failed').filter((time) => time > success);
  return { count: failures.length, last: Math.max(0, ...failures) };
}

function backoffLeft({ count, last }: { count: number; last: number }, now: number): number {
  if (count === 0) return 0;
  return Math.max(0, last + Math.min(FIRST_BACKOFF_MS * 2 ** (count - 1), MAX_BACKOFF_MS) - now);
}

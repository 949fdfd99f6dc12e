import { hasReason } from '../kube/client.ts';
import { selects } from '../kube/selector.ts';
import { timestamp } from '../kube/timestamp.ts';
import { type Job, type JobCondition, keyOf, type Pod, RESOURCES, splitKey } from '../kube/types.ts';
import { messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from './context.ts';
import { adoption, claim, controllerOf, controllerReference } from './ownership.ts';
import { queueOwnersOfPods } from './pod-owners.ts';
import { byDeletionRank, isFinished, isReady, podFrom, timeOf } from './pods.ts';

const INDEX = 'batch.kubernetes.io/job-completion-index';

export interface JobView {
  readonly job: Job;
  /** Pods that it controls or selects, without those whose deletion is under way. */
  readonly pods: readonly Pod[];
  readonly now: number;
}

export interface JobPlan {
  readonly adopt: readonly Pod[];
  readonly create: readonly Pod[];
  readonly delete: readonly Pod[];
  readonly status: NonNullable<Job['status']> | null;
  /** Finished, and its time to live is over. */
  readonly deleteJob: boolean;
  readonly checkAgainIn: number | null;
}

/** The pause before a pod replaces a failed one: 10 s, doubled with each failure, up to 10 minutes (upstream). */
const FIRST_BACKOFF_MS = 10_000;
const MOST_BACKOFF_MS = 600_000;

/** What a Job needs done. Pure. */
export function reconcileJob(view: JobView): JobPlan {
  const { job, now } = view;
  const { owned, adopt } = claim(job, job.spec?.selector, view.pods);
  const pods = [...owned, ...adopt];
  const active = pods.filter((pod) => !isFinished(pod));
  const nothing = { adopt, create: [], delete: [], deleteJob: false, checkAgainIn: null };
  const over = finishedCondition(job);
  if (over) {
    const ttl = job.spec?.ttlSecondsAfterFinished;
    const left = ttl === undefined ? null : timeOf(over.lastTransitionTime) + ttl * 1000 - now;
    return {
      ...nothing,
      delete: active,
      status: null,
      deleteJob: left !== null && left <= 0,
      checkAgainIn: left !== null && left > 0 ? left : null,
    };
  }
  const indexed = job.spec?.completionMode === 'Indexed';
  const { completions } = job.spec ?? {};
  const done = indexed ? doneIndexes(job, pods) : new Set<number>();
  const counted = (phase: string) => pods.filter((pod) => pod.status?.phase === phase).length;
  // Finished pods that somebody deleted stay counted.
  const succeeded = indexed ? done.size : Math.max(job.status?.succeeded ?? 0, counted('Succeeded'));
  const failed = Math.max(job.status?.failed ?? 0, counted('Failed'));
  const suspended = job.spec?.suspend === true;
  const started = job.status?.startTime ?? (suspended ? undefined : timestamp(now));
  const deadline = job.spec?.activeDeadlineSeconds;
  const deadlineIn =
    deadline === undefined || started === undefined ? null : timeOf(started) + deadline * 1000 - now;
  const verdict = verdictOf(job, { active: active.length, succeeded, failed, deadlineIn });
  const conditions = conditionsOf(job, verdict, suspended, now);
  const base = {
    ...(conditions.length > 0 ? { conditions } : {}),
    ...(started === undefined ? {} : { startTime: started }),
    ...(verdict?.type === 'Complete' ? { completionTime: timestamp(now) } : {}),
    ...(indexed && done.size > 0 ? { completedIndexes: ranges([...done]) } : {}),
  };
  const create: Pod[] = [];
  const remove: Pod[] = [];
  let backoffIn: number | null = null;
  if (verdict || suspended) remove.push(...active);
  else {
    const parallelism = job.spec?.parallelism ?? 1;
    const needed =
      completions === undefined
        ? succeeded > 0
          ? active.length
          : parallelism
        : Math.min(parallelism, completions - succeeded);
    const missing = needed - active.length;
    if (missing < 0) remove.push(...byDeletionRank(active).slice(0, -missing));
    backoffIn = missing > 0 ? backoffLeft(pods, failed, now) : null;
    if (missing > 0 && backoffIn === null) {
      const indexes = indexed ? freeIndexes(completions ?? 0, done, active) : [];
      for (let i = 0; i < missing; i++) create.push(jobPod(job, indexed ? (indexes[i] ?? null) : null));
    }
  }
  const ending = job.metadata?.deletionTimestamp !== undefined;
  const remaining = active.filter((pod) => !remove.includes(pod));
  const status = {
    ...base,
    active: remaining.length,
    ready: remaining.filter(isReady).length,
    succeeded,
    failed: failed + (verdict?.type === 'Failed' ? remove.length : 0),
    terminating: 0,
    uncountedTerminatedPods: {},
  };
  const waits = [deadlineIn, backoffIn].filter((wait) => wait !== null && wait > 0) as number[];
  return {
    adopt,
    create: ending ? [] : create,
    delete: ending ? [] : remove,
    status: same(status, job.status) ? null : status,
    deleteJob: false,
    checkAgainIn: waits.length > 0 ? Math.min(...waits) : null,
  };
}

function finishedCondition(job: Job): JobCondition | undefined {
  return job.status?.conditions?.find(
    ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
  );
}

interface Ending {
  readonly type: 'Complete' | 'Failed';
  readonly reason: string;
  readonly message: string;
}

function verdictOf(
  job: Job,
  counts: { active: number; succeeded: number; failed: number; deadlineIn: number | null },
): Ending | null {
  const { active, succeeded, failed, deadlineIn } = counts;
  if (failed > (job.spec?.backoffLimit ?? 6)) {
    return {
      type: 'Failed',
      reason: 'BackoffLimitExceeded',
      message: 'Job has reached the specified backoff limit',
    };
  }
  if (deadlineIn !== null && deadlineIn <= 0) {
    return {
      type: 'Failed',
      reason: 'DeadlineExceeded',
      message: 'Job was active longer than specified deadline',
    };
  }
  const { completions } = job.spec ?? {};
  const complete = completions === undefined ? succeeded > 0 && active === 0 : succeeded >= completions;
  if (!complete) return null;
  return {
    type: 'Complete',
    reason: 'CompletionsReached',
    message: 'Reached expected number of succeeded pods',
  };
}

function conditionsOf(job: Job, verdict: Ending | null, suspended: boolean, now: number): JobCondition[] {
  const known = job.status?.conditions ?? [];
  const conditions = known.filter(({ type }) => type !== 'Suspended');
  const before = known.find(({ type }) => type === 'Suspended');
  const entry = (type: string, status: string, reason: string, message: string): JobCondition => ({
    type,
    status,
    reason,
    message,
    lastProbeTime: timestamp(now),
    lastTransitionTime: timestamp(now),
  });
  if (suspended || before) {
    const status = suspended ? 'True' : 'False';
    if (before?.status === status) conditions.push(before);
    else {
      const reason = suspended ? 'JobSuspended' : 'JobResumed';
      conditions.push(entry('Suspended', status, reason, suspended ? 'Job suspended' : 'Job resumed'));
    }
  }
  if (verdict) {
    const criterion = verdict.type === 'Complete' ? 'SuccessCriteriaMet' : 'FailureTarget';
    for (const type of [criterion, verdict.type]) {
      conditions.push(entry(type, 'True', verdict.reason, verdict.message));
    }
  }
  return conditions;
}

/** Milliseconds until a failed pod may be replaced; null for now. */
function backoffLeft(pods: readonly Pod[], failed: number, now: number): number | null {
  if (failed === 0) return null;
  const ended = pods
    .filter((pod) => pod.status?.phase === 'Failed')
    .map((pod) => {
      const ends = (pod.status?.containerStatuses ?? []).map(({ state }) =>
        timeOf(state?.terminated?.finishedAt),
      );
      return Math.max(timeOf(pod.metadata?.creationTimestamp), ...ends);
    });
  const pause = Math.min(FIRST_BACKOFF_MS * 2 ** (failed - 1), MOST_BACKOFF_MS);
  const left = Math.max(0, ...ended) + pause - now;
  return left > 0 ? left : null;
}

function indexOf(pod: Pod): number | null {
  const text = pod.metadata?.annotations?.[INDEX];
  return text === undefined ? null : Number(text);
}

function doneIndexes(job: Job, pods: readonly Pod[]): Set<number> {
  const done = new Set<number>();
  for (const range of (job.status?.completedIndexes ?? '').split(',')) {
    const [first, last] = range.split('-').map(Number);
    if (range === '' || first === undefined) continue;
    for (let index = first; index <= (last ?? first); index++) done.add(index);
  }
  for (const pod of pods) {
    const index = indexOf(pod);
    if (pod.status?.phase === 'Succeeded' && index !== null && index < (job.spec?.completions ?? 0))
      done.add(index);
  }
  return done;
}

/** [1, 2, 3, 7] → "1-3,7" */
function ranges(indexes: number[]): string {
  const sorted = indexes.sort((a, b) => a - b);
  const parts: [number, number][] = [];
  for (const index of sorted) {
    const last = parts.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else parts.push([index, index]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(',');
}

function freeIndexes(completions: number, done: ReadonlySet<number>, active: readonly Pod[]): number[] {
  const busy = new Set(active.map(indexOf));
  return Array.from({ length: completions }, (_, index) => index).filter(
    (index) => !done.has(index) && !busy.has(index),
  );
}

function jobPod(job: Job, index: number | null): Pod {
  const pod = podFrom(job.spec?.template, job, controllerReference(job, RESOURCES.jobs));
  if (index === null || !pod.spec) return pod;
  const name = job.metadata?.name ?? '';
  const variable = {
    name: 'JOB_COMPLETION_INDEX',
    valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: `metadata.annotations['${INDEX}']` } },
  };
  return {
    ...pod,
    metadata: {
      ...pod.metadata,
      generateName: `${name}-${index}-`,
      annotations: { ...pod.metadata?.annotations, [INDEX]: String(index) },
      labels: { ...pod.metadata?.labels, [INDEX]: String(index) },
    },
    spec: {
      ...pod.spec,
      hostname: pod.spec.hostname ?? `${name}-${index}`,
      containers: pod.spec.containers.map((container) => ({
        ...container,
        env: [...(container.env ?? []).filter((entry) => entry.name !== variable.name), variable],
      })),
    },
  };
}

/** Runs Jobs to their end. */
export function startJobs(context: ControllerContext): void {
  const { caches, clock } = context;
  const { jobs, pods } = caches;
  const events = recorderFor(context, 'job-controller');
  const viewOf = (job: Job): JobView => {
    const orphans = pods
      .inNamespace(job.metadata?.namespace ?? '')
      .filter((pod) => !controllerOf(pod) && selects(job.spec?.selector, pod.metadata?.labels));
    return {
      job,
      pods: [...pods.controlledBy(job.metadata?.uid ?? ''), ...orphans].filter(
        (pod) => !pods.isDeleting(pod),
      ),
      now: clock.now(),
    };
  };
  const queue = controllerQueue(context, 'job', async (key) => {
    const { namespace, name } = splitKey(key);
    const job = jobs.get(namespace, name);
    if (!job) return;
    const plan = reconcileJob(viewOf(job));
    if (plan.deleteJob) {
      await jobs.delete(job, { propagationPolicy: 'Foreground' });
      return;
    }
    await all([
      ...plan.adopt.map((pod) => pods.patch(pod, 'merge', adoption(pod, job, RESOURCES.jobs))),
      ...plan.delete.map(async (pod) => {
        await pods.delete(pod);
        events.event(job, 'Normal', 'SuccessfulDelete', `Deleted pod: ${pod.metadata?.name}`, RESOURCES.jobs);
      }),
      ...plan.create.map(async (pod) => {
        try {
          const made = await pods.create(pod);
          events.event(
            job,
            'Normal',
            'SuccessfulCreate',
            `Created pod: ${made.metadata?.name}`,
            RESOURCES.jobs,
          );
        } catch (error) {
          if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
            events.event(
              job,
              'Warning',
              'FailedCreate',
              `Error creating: ${messageOf(error)}`,
              RESOURCES.jobs,
            );
          }
          throw error;
        }
      }),
    ]);
    // Written by the counts after what was just done, unless the job is over: then by the counts that ended it.
    const current = jobs.get(namespace, name);
    if (!current || current.metadata?.uid !== job.metadata?.uid) return;
    const ended = plan.status?.conditions?.some(({ type }) => type === 'Complete' || type === 'Failed');
    const after = ended ? plan : reconcileJob(viewOf(current));
    if (after.status) {
      await jobs.updateStatus({ ...current, status: after.status });
      if (ended) {
        const failed = plan.status?.conditions?.find(({ type }) => type === 'Failed');
        if (failed) events.event(job, 'Warning', failed.reason ?? '', failed.message ?? '', RESOURCES.jobs);
        else events.event(job, 'Normal', 'Completed', 'Job completed', RESOURCES.jobs);
      }
    }
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });
  jobs.informer.handle({
    onAdd: (job) => queue.add(keyOf(job)),
    onUpdate: (job) => queue.add(keyOf(job)),
  });
  queueOwnersOfPods(jobs, pods, queue, ({ spec }) => spec?.selector);
}

import { hasReason } from '../kube/client.ts';
import { timestamp } from '../kube/timestamp.ts';
import { type CronJob, type Job, keyOf, RESOURCES, splitKey } from '../kube/types.ts';
import { type CronSchedule, isTimeZone, parseCron, zonedTimestamp } from '../lib/cron.ts';
import { messageOf } from '../lib/errors.ts';
import { same } from './canonical.ts';
import { all, type ControllerContext, controllerQueue, recorderFor } from './context.ts';
import { controllerOf, controllerReference } from './ownership.ts';
import { timeOf } from './pods.ts';

/** The scheduled time of a Job; the format is upstream's (KEP-3140). */
const SCHEDULED_AT = 'batch.kubernetes.io/cronjob-scheduled-timestamp';
/** More missed times than this cause a warning. */
const MAX_MISSED = 100;

export interface CronJobView {
  readonly cronJob: CronJob;
  /** The Jobs that it controls. */
  readonly jobs: readonly Job[];
  readonly now: number;
}

export interface CronJobEvent {
  readonly type: 'Normal' | 'Warning';
  readonly reason: string;
  readonly message: string;
}

export interface CronJobPlan {
  readonly create: Job | null;
  /** Running Jobs that the new one replaces. */
  readonly replace: readonly Job[];
  /** Finished Jobs beyond the history limits. */
  readonly outdated: readonly Job[];
  /** The status after Jobs are created and deleted. */
  readonly status: NonNullable<CronJob['status']>;
  readonly events: readonly CronJobEvent[];
  /** Milliseconds until the next scheduled time. */
  readonly checkAgainIn: number | null;
}

/** Computes the next step of a CronJob (upstream's cronjob controller, version 2). Pure. */
export function reconcileCronJob(view: CronJobView): CronJobPlan {
  const { cronJob, jobs, now } = view;
  const events: CronJobEvent[] = [];
  const warn = (reason: string, message: string) => events.push({ type: 'Warning', reason, message });
  const status = observedStatus(view, events);
  const result: CronJobPlan = {
    create: null,
    replace: [],
    outdated: outdatedJobs(cronJob, jobs),
    status,
    events,
    checkAgainIn: null,
  };
  if (cronJob.metadata?.deletionTimestamp !== undefined || cronJob.spec?.suspend) return result;
  const zone = cronJob.spec?.timeZone ?? 'UTC';
  if (!isTimeZone(zone)) {
    warn('UnknownTimeZone', `invalid timeZone: ${JSON.stringify(zone)}: unknown time zone ${zone}`);
    return result;
  }
  let schedule: CronSchedule;
  try {
    schedule = parseCron(cronJob.spec?.schedule ?? '', zone);
  } catch (error) {
    warn(
      'UnparseableSchedule',
      `unparseable schedule ${JSON.stringify(cronJob.spec?.schedule)}: ${messageOf(error)}`,
    );
    return result;
  }
  const upcoming = schedule.next(now);
  if (upcoming === null) {
    // Upstream's reason; such a schedule is "0 0 31 2 *".
    warn('InvalidSchedule', `invalid schedule: ${cronJob.spec?.schedule}: it never comes`);
  }
  const waiting = { ...result, checkAgainIn: upcoming === null ? null : upcoming - now + 100 };
  const due = dueTime(cronJob, schedule, now);
  if (due === null) return waiting;
  if (due.missed > MAX_MISSED) {
    warn(
      'TooManyMissedTimes',
      'too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew',
    );
  }
  const deadline = cronJob.spec?.startingDeadlineSeconds;
  if (deadline !== undefined && due.time + deadline * 1000 < now) {
    warn('MissSchedule', `Missed scheduled time to start a job: ${timestamp(due.time)}`);
    return waiting;
  }
  const job = jobAt(cronJob, due.time, zone);
  const active = status.active ?? [];
  const isStarted =
    active.some(({ name }) => name === job.metadata?.name) ||
    timeOf(status.lastScheduleTime) === due.time ||
    jobs.some(({ metadata }) => metadata?.name === job.metadata?.name);
  if (isStarted) return waiting;
  const policy = cronJob.spec?.concurrencyPolicy ?? 'Allow';
  if (policy === 'Forbid' && active.length > 0) {
    events.push({
      type: 'Normal',
      reason: 'JobAlreadyActive',
      message: 'Not starting job because prior execution is running and concurrency policy is Forbid',
    });
    return waiting;
  }
  const replaced = policy === 'Replace' ? active.map(({ uid }) => uid) : [];
  return {
    ...waiting,
    create: job,
    replace: jobs.filter(({ metadata }) => replaced.includes(metadata?.uid)),
    status: { ...status, active: policy === 'Replace' ? [] : active, lastScheduleTime: timestamp(due.time) },
  };
}

function endOfJob(job: Job) {
  return job.status?.conditions?.find(
    ({ type, status }) => (type === 'Complete' || type === 'Failed') && status === 'True',
  );
}

/** Returns the status that follows from the Jobs: Jobs that ended or are gone are no longer active. */
function observedStatus(
  { cronJob, jobs }: CronJobView,
  events: CronJobEvent[],
): NonNullable<CronJob['status']> {
  const before = cronJob.status ?? {};
  const active: NonNullable<typeof before.active> = [];
  let { lastSuccessfulTime } = before;
  for (const reference of before.active ?? []) {
    const job = jobs.find(({ metadata }) => metadata?.uid === reference.uid);
    const end = job ? endOfJob(job) : undefined;
    if (!job) {
      const message = `Active job went missing: ${reference.name}`;
      events.push({ type: 'Normal', reason: 'MissingJob', message });
    } else if (end) {
      const message = `Saw completed job: ${reference.name}, condition: ${end.type}`;
      events.push({ type: 'Normal', reason: 'SawCompletedJob', message });
    } else active.push(reference);
  }
  for (const job of jobs) {
    const { completionTime } = job.status ?? {};
    if (endOfJob(job)?.type !== 'Complete' || completionTime === undefined) continue;
    if (timeOf(completionTime) > timeOf(lastSuccessfulTime)) lastSuccessfulTime = completionTime;
  }
  const { active: _active, ...rest } = before;
  return {
    ...rest,
    ...(active.length > 0 ? { active } : {}),
    ...(lastSuccessfulTime === undefined ? {} : { lastSuccessfulTime }),
  };
}

/**
 * Returns the latest scheduled time that has passed since the last one, and the number of missed times including it.
 */
function dueTime(
  cronJob: CronJob,
  schedule: CronSchedule,
  now: number,
): { time: number; missed: number } | null {
  const since = timeOf(cronJob.status?.lastScheduleTime ?? cronJob.metadata?.creationTimestamp);
  const deadline = cronJob.spec?.startingDeadlineSeconds;
  const begin = deadline === undefined ? since : Math.max(since, now - deadline * 1000);
  const first = schedule.next(begin);
  if (first === null || first > now) return null;
  const second = schedule.next(first);
  if (second === null || second > now) return { time: first, missed: 1 };
  // A long pause is not iterated completely: the times before the last day are estimated.
  const estimate = Math.floor((now - first) / (second - first));
  let [time, missed] = [first, 1];
  const from = Math.max(first, now - 86_400_000 - 32 * (second - first));
  if (from > first) [time, missed] = [schedule.next(from - 1) ?? first, Math.max(1, estimate)];
  for (let next = schedule.next(time); next !== null && next <= now; next = schedule.next(time)) {
    time = next;
    missed++;
  }
  return time > now ? { time: first, missed } : { time, missed };
}

function jobAt(cronJob: CronJob, time: number, zone: string): Job {
  const { name = '', namespace } = cronJob.metadata ?? {};
  const template = cronJob.spec?.jobTemplate;
  return {
    metadata: {
      name: `${name}-${Math.floor(time / 60_000)}`,
      ...(namespace ? { namespace } : {}),
      labels: { ...template?.metadata?.labels },
      annotations: { ...template?.metadata?.annotations, [SCHEDULED_AT]: zonedTimestamp(time, zone) },
      ownerReferences: [controllerReference(cronJob, RESOURCES.cronJobs)],
    },
    ...(template?.spec ? { spec: template.spec } : {}),
  };
}

function outdatedJobs(cronJob: CronJob, jobs: readonly Job[]): Job[] {
  const { successfulJobsHistoryLimit = 3, failedJobsHistoryLimit = 1 } = cronJob.spec ?? {};
  const surplus = (type: string, limit: number) =>
    jobs
      .filter((job) => endOfJob(job)?.type === type && job.metadata?.deletionTimestamp === undefined)
      .sort(
        (a, b) => timeOf(a.status?.startTime) - timeOf(b.status?.startTime) || (keyOf(a) < keyOf(b) ? -1 : 1),
      )
      .slice(0, -limit || undefined);
  return [...surplus('Complete', successfulJobsHistoryLimit), ...surplus('Failed', failedJobsHistoryLimit)];
}

/** Starts the Jobs of CronJobs at their scheduled times. */
export function startCronJobs(context: ControllerContext): void {
  const { caches, clock } = context;
  const { cronJobs, jobs } = caches;
  const events = recorderFor(context, 'cronjob-controller');
  const queue = controllerQueue(context, 'cronjob', async (key) => {
    const { namespace, name } = splitKey(key);
    const cronJob = cronJobs.get(namespace, name);
    if (!cronJob) return;
    const recordEvent = (type: 'Normal' | 'Warning', reason: string, message: string) =>
      events.event(cronJob, type, reason, message, RESOURCES.cronJobs);
    const plan = reconcileCronJob({
      cronJob,
      jobs: jobs.controlledBy(cronJob.metadata?.uid ?? ''),
      now: clock.now(),
    });
    for (const { type, reason, message } of plan.events) recordEvent(type, reason, message);
    await all(
      [...plan.replace, ...plan.outdated].map(async (job) => {
        await jobs.delete(job, { propagationPolicy: 'Background' });
        recordEvent('Normal', 'SuccessfulDelete', `Deleted job ${job.metadata?.name}`);
      }),
    );
    let { status } = plan;
    if (plan.create) {
      const created = await createJob(cronJob, plan.create, recordEvent);
      const { name: jobName = '', uid = '', resourceVersion = '' } = created.metadata ?? {};
      const reference = {
        kind: 'Job',
        apiVersion: 'batch/v1',
        namespace,
        name: jobName,
        uid,
        resourceVersion,
      };
      status = { ...status, active: [...(status.active ?? []), reference] };
    }
    if (!same(status, cronJob.status ?? {})) await cronJobs.updateStatus({ ...cronJob, status });
    if (plan.checkAgainIn !== null) queue.addAfter(key, plan.checkAgainIn);
  });
  const createJob = async (
    cronJob: CronJob,
    job: Job,
    recordEvent: (type: 'Normal' | 'Warning', reason: string, message: string) => void,
  ): Promise<Job> => {
    try {
      const created = await jobs.create(job);
      recordEvent('Normal', 'SuccessfulCreate', `Created job ${created.metadata?.name}`);
      return created;
    } catch (error) {
      // Created by a previous reconcile whose status write failed.
      if (hasReason(error, 'AlreadyExists')) {
        const { name = '', namespace } = job.metadata ?? {};
        const existing = await context.client.get(RESOURCES.jobs, name, namespace);
        if (controllerOf(existing)?.uid === cronJob.metadata?.uid) return existing;
      }
      recordEvent('Warning', 'FailedCreate', `Error creating job: ${messageOf(error)}`);
      throw error;
    }
  };
  cronJobs.informer.handle({
    onAdd: (cronJob) => queue.add(keyOf(cronJob)),
    onUpdate: (cronJob) => queue.add(keyOf(cronJob)),
  });
  const jobChanged = (job: Job) => {
    const controller = controllerOf(job);
    if (controller?.kind === 'CronJob') queue.add(`${job.metadata?.namespace}/${controller.name}`);
  };
  jobs.informer.handle({ onAdd: jobChanged, onUpdate: jobChanged, onDelete: jobChanged });
}

import { hasReason } from '../../kube/client.ts';
import { selects } from '../../kube/selector.ts';
import { type Job, keyOf, type Pod, RESOURCES, splitKey } from '../../kube/types.ts';
import { messageOf } from '../../lib/errors.ts';
import { all, type ControllerContext, controllerQueue, isEnding, recorderFor } from '../context.ts';
import { adoption, controllerOf, release } from '../ownership.ts';
import { queueOwnersOfPods } from '../pod-owners.ts';
import { isTracked, TRACKING, withoutTracking } from './pods.ts';
import { type JobPlan, type JobView, reconcileJob } from './reconcile.ts';

const CONTROLLER = 'kubernetes.io/job-controller';

const adopted = (pod: Pod, job: Job) => {
  const { metadata } = adoption(pod, job, RESOURCES.jobs);
  const finalizers = [...(pod.metadata?.finalizers ?? []), TRACKING];
  return { metadata: isTracked(pod) ? metadata : { ...metadata, finalizers } };
};
const released = (pod: Pod, job: Job) => ({
  metadata: { ...release(pod, job).metadata, ...withoutTracking(pod).metadata },
});

/** Runs Jobs to completion. */
export function startJobs(context: ControllerContext): void {
  const { caches, clock, client } = context;
  const { jobs, pods } = caches;
  const events = recorderFor(context, 'job-controller');
  const recordEvent = (job: Job, type: 'Normal' | 'Warning', reason: string, message: string) =>
    events.event(job, type, reason, message, RESOURCES.jobs);

  const viewOf = (job: Job): JobView => {
    const orphans = pods
      .inNamespace(job.metadata?.namespace ?? '')
      .filter((pod) => !controllerOf(pod) && selects(job.spec?.selector, pod.metadata?.labels));
    const deletionTimestamp = new Date(clock.now()).toISOString();
    return {
      job,
      pods: [...pods.controlledBy(job.metadata?.uid ?? ''), ...orphans].map((pod) =>
        pods.isDeleting(pod) && pod.metadata?.deletionTimestamp === undefined
          ? { ...pod, metadata: { ...pod.metadata, deletionTimestamp } }
          : pod,
      ),
      now: clock.now(),
    };
  };
  const queue = controllerQueue(context, 'job', async (key) => {
    const { namespace, name } = splitKey(key);
    const job = jobs.get(namespace, name);
    if (!job || (job.spec?.managedBy ?? CONTROLLER) !== CONTROLLER) return;
    const plan = reconcileJob(viewOf(job));
    if (plan.deleteJob) {
      await jobs.delete(job, { propagationPolicy: 'Foreground' });
      return;
    }
    // Status first: a pod that it does not count must not be released.
    if (plan.status) {
      await jobs.updateStatus({ ...job, status: plan.status });
      recordChanges(job, plan.status);
    }
    await execute(job, plan);
    const current = jobs.get(namespace, name);
    if (!current || current.metadata?.uid !== job.metadata?.uid) return;
    const after = reconcileJob(viewOf(current));
    const isDone =
      after.status === null && after.untrack.length + after.create.length + after.delete.length === 0;
    if (!isDone || after.deleteJob) queue.add(key);
    if (after.checkAgainIn !== null) queue.addAfter(key, after.checkAgainIn);
  });
  const execute = async (job: Job, plan: JobPlan) => {
    await all([
      ...plan.adopt.map((pod) => pods.patch(pod, 'merge', adopted(pod, job))),
      ...plan.release.map((pod) => pods.patch(pod, 'merge', released(pod, job))),
      ...plan.untrack.map((pod) => untrack(pod)),
      ...plan.delete.map(async (pod) => {
        await pods.delete(pod);
        recordEvent(job, 'Normal', 'SuccessfulDelete', `Deleted pod: ${pod.metadata?.name}`);
      }),
      (async () => {
        // Slow start: a template that the server refuses costs one request, not hundreds.
        for (let from = 0, batch = 1; from < plan.create.length; from += batch, batch *= 2) {
          await all(plan.create.slice(from, from + batch).map((pod) => createPod(job, pod)));
        }
      })(),
    ]);
  };
  const createPod = async (job: Job, pod: Pod) => {
    try {
      const made = await pods.create(pod);
      recordEvent(job, 'Normal', 'SuccessfulCreate', `Created pod: ${made.metadata?.name}`);
    } catch (error) {
      if (hasReason(error, 'Forbidden', 'Invalid', 'BadRequest') && !isEnding(error)) {
        recordEvent(job, 'Warning', 'FailedCreate', `Error creating: ${messageOf(error)}`);
      }
      throw error;
    }
  };
  const untrack = async (pod: Pod) => {
    try {
      await pods.patch(pod, 'merge', withoutTracking(pod));
    } catch (error) {
      // Already deleted.
      if (!hasReason(error, 'NotFound')) throw error;
    }
  };
  const recordChanges = (job: Job, status: NonNullable<Job['status']>) => {
    const isNew = (type: string, value: string) =>
      !job.status?.conditions?.some((one) => one.type === type && one.status === value) &&
      status.conditions?.find((one) => one.type === type && one.status === value);
    const failed = isNew('Failed', 'True');
    if (failed) recordEvent(job, 'Warning', failed.reason ?? '', failed.message ?? '');
    if (isNew('Complete', 'True')) recordEvent(job, 'Normal', 'Completed', 'Job completed');
    if (isNew('Suspended', 'True')) recordEvent(job, 'Normal', 'Suspended', 'Job suspended');
    if (isNew('Suspended', 'False')) recordEvent(job, 'Normal', 'Resumed', 'Job resumed');
  };

  /** Removes the finalizer of pods whose Job is gone or no longer controls them: no Job counts them. */
  const orphans = controllerQueue(context, 'job-orphans', async (key) => {
    const pod = pods.informer.get(key);
    if (!pod || !isTracked(pod)) return;
    const controller = controllerOf(pod);
    if (controller?.kind === 'Job') {
      try {
        const job = await client.get(RESOURCES.jobs, controller.name, pod.metadata?.namespace);
        if (job.metadata?.uid === controller.uid) return;
      } catch (error) {
        if (!hasReason(error, 'NotFound')) throw error;
      }
    }
    await untrack(pod);
  });
  const isOrphan = (pod: Pod) => {
    const controller = controllerOf(pod);
    if (!isTracked(pod)) return false;
    if (controller?.kind !== 'Job') return true;
    return jobs.get(pod.metadata?.namespace, controller.name)?.metadata?.uid !== controller.uid;
  };
  const podChanged = (pod: Pod) => {
    if (isOrphan(pod)) orphans.add(keyOf(pod));
  };
  pods.informer.handle({ onAdd: podChanged, onUpdate: podChanged });
  jobs.informer.handle({
    onAdd: (job) => queue.add(keyOf(job)),
    onUpdate: (job) => queue.add(keyOf(job)),
    onDelete(job) {
      for (const pod of pods.controlledBy(job.metadata?.uid ?? '')) podChanged(pod);
    },
  });
  queueOwnersOfPods(jobs, pods, queue, ({ spec }) => spec?.selector);
}

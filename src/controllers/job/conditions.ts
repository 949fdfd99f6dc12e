import { timestamp } from '../../kube/timestamp.ts';
import type { Job, JobCondition } from '../../kube/types.ts';

/** Why and how a Job ends. */
export interface Ending {
  readonly type: 'Complete' | 'Failed';
  readonly reason: string;
  readonly message: string;
}

/** Returns the condition that marks the Job as finished. */
export function finishedCondition(job: Job): JobCondition | undefined {
  return conditionOf(job, 'Complete') ?? conditionOf(job, 'Failed');
}

/** Returns the ending that was decided earlier; it does not change while the last pods end. */
export function decidedEnding(job: Job): Ending | null {
  for (const [criterion, type] of CRITERIA) {
    const { reason = '', message = '' } = conditionOf(job, criterion) ?? {};
    if (reason !== '') return { type, reason, message };
  }
  return null;
}

const CRITERIA = [
  ['FailureTarget', 'Failed'],
  ['SuccessCriteriaMet', 'Complete'],
] as const;

function conditionOf(job: Job, type: string): JobCondition | undefined {
  return job.status?.conditions?.find((condition) => condition.type === type && condition.status === 'True');
}

/**
 * Computes the conditions of a Job: whether it is suspended, and how it ends; the last condition is set once its pods
 * have ended (KEP-3998).
 */
export function conditionsOf(
  job: Job,
  state: { readonly ending: Ending | null; readonly isOver: boolean; readonly isSuspended: boolean },
  now: number,
): JobCondition[] {
  const conditions = [...(job.status?.conditions ?? [])];
  const put = (type: string, status: string, reason: string, message: string) => {
    const at = conditions.findIndex((condition) => condition.type === type);
    const before = conditions[at];
    if (before?.status === status) return;
    const time = timestamp(now);
    const entry = { type, status, reason, message, lastProbeTime: time, lastTransitionTime: time };
    if (at < 0) conditions.push(entry);
    else conditions[at] = entry;
  };
  const { ending, isOver, isSuspended } = state;
  if (isSuspended && !ending) put('Suspended', 'True', 'JobSuspended', 'Job suspended');
  else if (conditions.some(({ type }) => type === 'Suspended') && !ending) {
    put('Suspended', 'False', 'JobResumed', 'Job resumed');
  }
  if (ending) {
    const { type, reason, message } = ending;
    put(type === 'Complete' ? 'SuccessCriteriaMet' : 'FailureTarget', 'True', reason, message);
    if (isOver) put(type, 'True', reason, message);
  }
  return conditions;
}

import { timestamp } from '../kube/timestamp.ts';
import { type ApiObject, listAt } from './object.ts';

/** Returns the condition of a new pod that its scheduling gates hold back, for its status; {} without gates. */
export function gatedCondition(pod: ApiObject, now: Date): object {
  if (listAt(pod, 'spec', 'schedulingGates').length === 0) return {};
  const condition = {
    type: 'PodScheduled',
    status: 'False',
    lastProbeTime: null,
    lastTransitionTime: timestamp(now.getTime()),
    reason: 'SchedulingGated',
    message: 'Scheduling is blocked due to non-empty scheduling gates',
  };
  return { conditions: [condition] };
}

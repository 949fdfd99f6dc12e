import type { Job, Pod } from '../../kube/types.ts';
import { parseIndexes } from './indexes.ts';

/** The result of the Job's podFailurePolicy for a failed pod (KEP-3329). */
export interface FailureVerdict {
  readonly action: 'FailJob' | 'FailIndex' | 'Ignore' | 'Count';
  readonly message: string;
}

/** Applies the first matching rule of the Job's podFailurePolicy; failures without a matching rule count. Pure. */
export function failureVerdict(job: Job, pod: Pod): FailureVerdict {
  const name = `${pod.metadata?.namespace}/${pod.metadata?.name}`;
  for (const [i, rule] of (job.spec?.podFailurePolicy?.rules ?? []).entries()) {
    const action = rule.action as FailureVerdict['action'];
    const by = `matching ${action} rule at index ${i}`;
    const { onExitCodes, onPodConditions = [] } = rule;
    if (onExitCodes) {
      const exited = exitCodes(pod).find(
        ({ container, code }) =>
          (onExitCodes.containerName === undefined || onExitCodes.containerName === container) &&
          onExitCodes.values.includes(code) === (onExitCodes.operator === 'In'),
      );
      if (exited) {
        const message = `Container ${exited.container} for pod ${name} failed with exit code ${exited.code} ${by}`;
        return { action, message };
      }
      continue;
    }
    const condition = pod.status?.conditions?.find(({ type, status }) =>
      onPodConditions.some((pattern) => pattern.type === type && (pattern.status ?? 'True') === status),
    );
    if (condition) return { action, message: `Pod ${name} has condition ${condition.type} ${by}` };
  }
  return { action: 'Count', message: '' };
}

/** Returns the exit codes of containers that failed. */
function exitCodes(pod: Pod): { container: string; code: number }[] {
  const { containerStatuses = [], initContainerStatuses = [] } = pod.status ?? {};
  return [...containerStatuses, ...initContainerStatuses].flatMap(({ name, state }) => {
    const code = state?.terminated?.exitCode ?? 0;
    return code === 0 ? [] : [{ container: name, code }];
  });
}

/**
 * Returns the number of the first rule of the Job's successPolicy that the completed indexes satisfy (KEP-3998), or
 * null. Pure.
 */
export function matchedSuccessRule(job: Job, done: ReadonlySet<number>): number | null {
  const rules = job.spec?.successPolicy?.rules ?? [];
  const found = rules.findIndex(({ succeededIndexes, succeededCount }) => {
    if (succeededIndexes === undefined) return done.size >= (succeededCount ?? Number.POSITIVE_INFINITY);
    const wanted = parseIndexes(succeededIndexes, job.spec?.completions ?? 0);
    const matched = [...wanted].filter((index) => done.has(index)).length;
    return matched >= (succeededCount ?? wanted.size);
  });
  return found < 0 ? null : found;
}

/** Reports whether containers that restart in place have reached the Job's limit. */
export function hasRestartedTooOften(job: Job, pods: readonly Pod[]): boolean {
  if (job.spec?.template?.spec?.restartPolicy !== 'OnFailure') return false;
  let restarts = 0;
  for (const { status } of pods) {
    if (status?.phase !== 'Running' && status?.phase !== 'Pending') continue;
    const { containerStatuses = [], initContainerStatuses = [] } = status;
    for (const { restartCount } of [...containerStatuses, ...initContainerStatuses]) restarts += restartCount;
  }
  const limit = job.spec?.backoffLimit ?? 6;
  return limit === 0 ? restarts > 0 : restarts >= limit;
}

import type { Node, Taint, Toleration } from '../kube/types.ts';
import { NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT } from '../kube/well-known-labels.ts';

/** Reports whether the toleration matches the taint (core/v1 ToleratesTaint). */
export function tolerates(toleration: Toleration, taint: Taint): boolean {
  if (toleration.effect && toleration.effect !== taint.effect) return false;
  if (toleration.key && toleration.key !== taint.key) return false;
  const operator = toleration.operator ?? 'Equal';
  if (operator === 'Exists') return true;
  // Without a key, only Exists is meaningful.
  return Boolean(toleration.key) && (toleration.value ?? '') === (taint.value ?? '');
}

/** Returns the first taint of these effects that is not tolerated. */
export function untolerated(
  taints: readonly Taint[],
  tolerations: readonly Toleration[],
  effects: readonly string[],
): Taint | undefined {
  return taints.find(
    (taint) =>
      effects.includes(taint.effect) && !tolerations.some((toleration) => tolerates(toleration, taint)),
  );
}

/** Returns the taints that a node should have: its own, and the taints that follow from its state. */
export function nodeTaints(node: Node): Taint[] {
  const derived = [NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT];
  const own = (node.spec?.taints ?? []).filter(
    ({ key, effect }) => !(derived.includes(key) && effect !== 'PreferNoSchedule'),
  );
  const ready = node.status?.conditions?.find(({ type }) => type === 'Ready')?.status;
  const taints = [...own];
  if (node.spec?.unschedulable) taints.push({ key: UNSCHEDULABLE_TAINT, effect: 'NoSchedule' });
  // A node that has not reported yet accepts no pods, but evicts none.
  if (ready === undefined) taints.push({ key: NOT_READY_TAINT, effect: 'NoSchedule' });
  else if (ready !== 'True') {
    const key = ready === 'Unknown' ? UNREACHABLE_TAINT : NOT_READY_TAINT;
    taints.push({ key, effect: 'NoSchedule' }, { key, effect: 'NoExecute' });
  }
  return taints;
}

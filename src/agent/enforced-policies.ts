import type { AgentContext } from './agent-context.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import { type PolicyPart, policyAccess, removeLeftPolicies, startPolicies } from './policy-part.ts';

/** Starts the enforcement of network policies as configured; null: none are enforced, and what an earlier agent left is removed. */
export async function startPolicyPart(
  context: AgentContext,
  { allNodes }: FollowedNodes,
): Promise<PolicyPart | null> {
  const { policy } = context.configuration;
  if (policy?.enforce) {
    const access = await policyAccess(context);
    return access === 'not-served'
      ? null
      : startPolicies(context, allNodes(), { isAllowed: access !== 'forbidden' });
  }
  if (policy) await removeLeftPolicies();
  return null;
}

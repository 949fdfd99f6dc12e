import { EGRESS_NAMES, egressNamesProblems } from '../kube/egress-names.ts';
import { keyOf, type NetworkPolicy } from '../kube/types.ts';
import type { Logger } from '../lib/log.ts';
import type { Policy } from '../policy/model.ts';
import type { PolicyTable } from '../policy/policy-table.ts';
import type { AgentContext } from './agent-context.ts';

/** Returns what reports, once, that policies have names but this agent serves no DNS. */
export function createNoDnsReport(
  { configuration, nodeEvent }: Pick<AgentContext, 'configuration' | 'nodeEvent'>,
  table: Pick<PolicyTable, 'usesNames'>,
  logger: Logger,
): () => void {
  let isReported = false;
  return () => {
    if (isReported || configuration.dns || !table.usesNames) return;
    isReported = true;
    const message =
      'policies have names (domainNames, fairlead.dev/egress-names), but this agent serves no DNS (dns in its configuration): their names allow nothing';
    logger.warn({}, message);
    nodeEvent('Warning', 'NamesNotAllowed', message);
  };
}

/** The API server of a local cluster warns the author of a policy; on other clusters only this log does. */
export function warnOfNames(logger: Logger, policy: NetworkPolicy): void {
  const problems = egressNamesProblems(policy);
  if (problems.length === 0) return;
  const key = keyOf(policy);
  logger.warn({ policy: key }, `NetworkPolicy ${key}, annotation ${EGRESS_NAMES}: ${problems.join('; ')}`);
}

/** Names the fields of a policy of the whole cluster that are not supported. */
export function warnUnsupported(logger: Logger, { kind, name }: Policy, fields: readonly string[]): void {
  if (fields.length === 0) return;
  logger.warn(
    { kind, name, fields },
    `unsupported fields in ${kind} ${name}: rules with action Accept that use them match nothing, other rules that use them deny everything`,
  );
}

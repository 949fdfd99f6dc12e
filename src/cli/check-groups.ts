import { policyTexts } from '../conformance/policy-flows.ts';
import { SCENARIOS } from '../conformance/scenarios.ts';
import { FairleadError } from '../lib/errors.ts';

/** Returns the groups of flows of the check, as their descriptions begin. */
export function checkGroups(): string[] {
  const services = SCENARIOS.map(({ name, describes }) => `${name}: ${describes}`);
  const policies = policyTexts(['ipv4']).map((text) => text.split(': ').slice(0, 2).join(': '));
  return [...services, ...new Set(policies), 'forged source: datagrams of pods with the addresses of others'];
}

/** Returns the error of a check of which no flow is wanted. */
export const noSuchFlow = (only: readonly string[]): FairleadError =>
  new FairleadError(
    `no flow matches --only ${only.join(' or ')}; the groups are:\n  ${checkGroups().join('\n  ')}`,
    {
      op: 'fairlead check',
      code: 'usage',
      hint: "a word of a group's line, such as --only plain",
    },
  );

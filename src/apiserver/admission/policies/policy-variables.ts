import { setOwnMember } from '../../../lib/own-member.ts';
import type { Authorizer } from '../../authorization/authorizer.ts';
import { CelError } from '../../cel/cel-error.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { type ApiObject, type JsonObject, textAt } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import { REQUEST_VARIABLES, requestVariables } from '../match-conditions.ts';
import type { AdmissionAttributes } from '../plugin.ts';

/** Names that expressions of policies may use. */
export const POLICY_VARIABLES = [...REQUEST_VARIABLES, 'params', 'namespaceObject', 'variables'] as const;

/**
 * Returns the variables of a policy's expressions; the policy's own variables (`variables.NAME`) are evaluated in
 * order.
 */
export async function policyVariables(
  programs: RequestPrograms,
  view: ObjectView,
  authorizer: Authorizer,
  attributes: AdmissionAttributes,
  params: ApiObject | null,
  own: readonly JsonObject[],
): Promise<Record<string, unknown>> {
  const namespace =
    attributes.namespace === '' ? undefined : view.get('namespaces', `/${attributes.namespace}`);
  const computed: Record<string, unknown> = {};
  const variables: Record<string, unknown> = {
    ...requestVariables(attributes, authorizer),
    params,
    namespaceObject: namespace ?? null,
    variables: computed,
  };
  for (const variable of own) {
    const name = textAt(variable, 'name');
    try {
      const value = await programs.compile(textAt(variable, 'expression')).evaluate(variables);
      setOwnMember(computed, name, value);
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      // Only an expression that reads the variable fails.
      Object.defineProperty(computed, name, {
        enumerable: true,
        get() {
          throw new CelError(
            `composited variable ${JSON.stringify(name)} fails to evaluate: ${error.message}`,
          );
        },
      });
    }
  }
  return variables;
}

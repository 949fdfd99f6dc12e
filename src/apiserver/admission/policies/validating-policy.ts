import type { Authorizer } from '../../authorization/authorizer.ts';
import { CelError } from '../../cel/cel-error.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { type ApiObject, at, type JsonObject, listAt, textAt } from '../../object.ts';
import { StatusError } from '../../status-error.ts';
import { reviewedAs } from '../equivalent-object.ts';
import { conditionsMatch } from '../match-conditions.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../plugin.ts';
import { admissionForbidden } from '../refusal.ts';
import {
  boundPolicies,
  ParameterError,
  type PolicyWorld,
  parametersOf,
  variablesIn,
} from './policy-scope.ts';
import { policyVariables } from './policy-variables.ts';

/** Reason why a validation failed. */
interface Failure {
  readonly message: string;
  readonly reason: string;
}

/** HTTP status codes of the reasons that a validation may name. */
const CODES: Readonly<Record<string, number>> = {
  Unauthorized: 401,
  Forbidden: 403,
  Invalid: 422,
  RequestEntityTooLarge: 413,
};

/** Checks writes against ValidatingAdmissionPolicies and their bindings (KEP-3488). */
export function createValidatingPolicies(
  world: PolicyWorld,
  programs: RequestPrograms,
  authorizer: Authorizer,
): AdmissionPlugin {
  return {
    name: 'ValidatingAdmissionPolicy',
    handles: (attributes) => boundPolicies(world, 'validating', attributes).length > 0,
    async validate(attributes) {
      for (const { policy, binding, resource } of boundPolicies(world, 'validating', attributes)) {
        const shown = { ...attributes, ...(await reviewedAs(world.registry, attributes, resource)) };
        const failures = await failuresOf(world, programs, authorizer, shown, policy, binding);
        if (failures.length > 0) enforce(attributes, policy, binding, failures);
      }
    },
  };
}

async function failuresOf(
  world: PolicyWorld,
  programs: RequestPrograms,
  authorizer: Authorizer,
  attributes: AdmissionAttributes,
  policy: ApiObject,
  binding: ApiObject,
): Promise<Failure[]> {
  const failed = (message: string): Failure[] =>
    at(policy, 'spec', 'failurePolicy') === 'Ignore' ? [] : [{ message, reason: 'Invalid' }];
  try {
    const failures: Failure[] = [];
    for (const params of parametersOf(world, policy, binding, attributes)) {
      const variables = await policyVariables(
        programs,
        world.view,
        authorizer,
        attributes,
        params,
        variablesIn(policy),
      );
      if (!(await conditionsMatch(listAt(policy, 'spec', 'matchConditions'), programs, variables))) continue;
      for (const validation of listAt(policy, 'spec', 'validations')) {
        failures.push(...(await failureOf(programs, validation, variables, failed)));
      }
    }
    return failures;
  } catch (error) {
    if (error instanceof ParameterError) return failed(`failed to configure binding: ${error.message}`);
    if (error instanceof CelError) return failed(`failed to evaluate match conditions: ${error.message}`);
    throw error;
  }
}

async function failureOf(
  programs: RequestPrograms,
  validation: JsonObject,
  variables: Readonly<Record<string, unknown>>,
  failed: (message: string) => Failure[],
): Promise<Failure[]> {
  const expression = textAt(validation, 'expression').trim();
  try {
    if ((await programs.compile(expression).evaluate(variables)) === true) return [];
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return failed(`expression '${expression}' resulted in error: ${error.message}`);
  }
  const message = (await messageOf(programs, validation, variables)) || `failed expression: ${expression}`;
  return [{ message, reason: textAt(validation, 'reason') || 'Invalid' }];
}

/**
 * Returns the message of a validation: the result of its messageExpression if that is one line of text, else the fixed
 * message.
 */
async function messageOf(
  programs: RequestPrograms,
  validation: JsonObject,
  variables: Readonly<Record<string, unknown>>,
): Promise<string> {
  const fixed = textAt(validation, 'message').trim();
  const expression = textAt(validation, 'messageExpression');
  if (expression === '') return fixed;
  try {
    const text = await programs.compile(expression).evaluate(variables);
    const usable =
      typeof text === 'string' && text.trim() !== '' && !text.includes('\n') && text.length <= 5 * 1024;
    return usable ? text.trim() : fixed;
  } catch (error) {
    if (error instanceof CelError) return fixed;
    throw error;
  }
}

/** Refuses or warns according to the binding. Throws StatusError for the first failure that denies the write. */
function enforce(
  attributes: AdmissionAttributes,
  policy: ApiObject,
  binding: ApiObject,
  failures: readonly Failure[],
): void {
  const listed = at(binding, 'spec', 'validationActions');
  const actions = Array.isArray(listed) ? listed : ['Deny'];
  const names = `ValidatingAdmissionPolicy '${policy.metadata.name}' with binding '${binding.metadata.name}'`;
  if (actions.includes('Warn')) {
    for (const { message } of failures) attributes.warn(`Validation failed for ${names}: ${message}`);
  }
  const [first] = failures;
  if (!first || !actions.includes('Deny')) return;
  const message = `${names} denied request: ${first.message}`;
  const refused = admissionForbidden(attributes, message);
  throw new StatusError(CODES[first.reason] ?? 422, first.reason, refused.message, {
    ...refused.details,
    causes: [{ message }],
  });
}

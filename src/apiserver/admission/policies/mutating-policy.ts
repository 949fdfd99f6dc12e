import type { Logger } from '../../../lib/log.ts';
import type { Authorizer } from '../../authorization/authorizer.ts';
import { CelError } from '../../cel/cel-error.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { type ApiObject, at, equal, listAt } from '../../object.ts';
import type { SchemaService } from '../../schema-service.ts';
import { replaceObject, reviewedAs } from '../equivalent-object.ts';
import { conditionsMatch } from '../match-conditions.ts';
import type { AdmissionAttributes } from '../plugin.ts';
import { admissionForbidden, joinReasons } from '../refusal.ts';
import type { ReinvokedPlugin } from '../reinvocation.ts';
import { MutationError, mutated } from './mutation.ts';
import {
  type BoundPolicy,
  boundPolicies,
  ParameterError,
  type PolicyWorld,
  parametersOf,
  variablesIn,
} from './policy-scope.ts';
import { policyVariables } from './policy-variables.ts';

export interface MutatingPolicyOptions extends PolicyWorld {
  /** Compiles match conditions and variables. */
  readonly programs: RequestPrograms;
  /** Compiles the expressions of mutations. */
  readonly mutations: RequestPrograms;
  readonly authorizer: Authorizer;
  readonly schema: SchemaService;
  /** Drops unknown fields and sets defaults after a mutation. */
  readonly complete: (object: ApiObject) => void;
  readonly logger: Logger;
}

/** Changes objects according to MutatingAdmissionPolicies and their bindings (KEP-3962). */
export function createMutatingPolicies(options: MutatingPolicyOptions): ReinvokedPlugin {
  const bound = (attributes: AdmissionAttributes) =>
    attributes.object ? boundPolicies(options, 'mutating', attributes) : [];
  return {
    handles: (attributes) => bound(attributes).length > 0,
    begin(attributes) {
      const { object } = attributes;
      /** Policies that may be reinvoked, with the object as each of them left it. */
      const seen = new Map<BoundPolicy, unknown>();
      const run = async (policies: readonly BoundPolicy[]) => {
        if (!object) return false;
        const problems: string[] = [];
        let changed = false;
        for (const one of policies) {
          const result = await carryOut(options, attributes, object, one);
          if (result.changed) changed = true;
          problems.push(...enforced(options, one, result.problems));
          seen.set(one, structuredClone(object));
        }
        if (problems.length > 0) throw admissionForbidden(attributes, joinReasons(problems));
        return changed;
      };
      return {
        first: () => run(bound(attributes)),
        async again() {
          for (const [one, left] of [...seen]) {
            const again = at(one.policy, 'spec', 'reinvocationPolicy') === 'IfNeeded';
            if (again && !equal(left, object)) await run([one]);
          }
        },
      };
    },
  };
}

/** Returns the problems that refuse a write: none with failurePolicy Ignore. */
function enforced(
  { logger }: MutatingPolicyOptions,
  { policy, binding }: BoundPolicy,
  problems: readonly string[],
): string[] {
  const texts = problems.map(
    (problem) =>
      `policy '${policy.metadata.name}' with binding '${binding.metadata.name}' denied request: ${problem}`,
  );
  if (at(policy, 'spec', 'failurePolicy') !== 'Ignore') return texts;
  for (const text of texts) logger.warn({ policy: policy.metadata.name }, `${text}; ignored`);
  return [];
}

/** Applies the mutations of a policy in order, once for each parameter object. */
async function carryOut(
  options: MutatingPolicyOptions,
  attributes: AdmissionAttributes,
  object: ApiObject,
  { policy, binding, resource }: BoundPolicy,
): Promise<{ changed: boolean; problems: string[] }> {
  const problems: string[] = [];
  let changed = false;
  let parameters: (ApiObject | null)[];
  try {
    parameters = parametersOf(options, policy, binding, attributes);
  } catch (error) {
    if (!(error instanceof ParameterError)) throw error;
    return { changed, problems: [`failed to configure binding: ${error.message}`] };
  }
  const variablesWith = async (params: ApiObject | null) => {
    const shown = { ...attributes, ...(await reviewedAs(options.registry, attributes, resource)) };
    const { programs, view, authorizer } = options;
    const variables = await policyVariables(programs, view, authorizer, shown, params, variablesIn(policy));
    return { shown: shown.object ?? object, variables };
  };
  for (const params of parameters) {
    try {
      const { variables } = await variablesWith(params);
      const conditions = listAt(policy, 'spec', 'matchConditions');
      if (!(await conditionsMatch(conditions, options.programs, variables))) continue;
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      problems.push(`failed to evaluate match conditions: ${error.message}`);
      continue;
    }
    for (const mutation of listAt(policy, 'spec', 'mutations')) {
      // Each mutation sees the result of the previous one.
      const { shown, variables } = await variablesWith(params);
      try {
        const next = await mutated(options.mutations, options.schema, mutation, shown, variables);
        const { registry, complete } = options;
        const copy = structuredClone(next);
        if (await replaceObject(registry, complete, object, attributes, resource, copy)) changed = true;
      } catch (error) {
        if (!(error instanceof CelError || error instanceof MutationError)) throw error;
        problems.push(error.message);
      }
    }
  }
  return { changed, problems };
}

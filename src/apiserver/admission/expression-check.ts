import { CelError } from '../cel/cel-error.ts';
import {
  createMutationPrograms,
  createRequestPrograms,
  type RequestPrograms,
} from '../cel/request-program.ts';
import type { Kind } from '../kind.ts';
import { type ApiObject, at, type JsonObject, listAt, textAt } from '../object.ts';
import { type FieldError, invalid } from '../status-error.ts';
import { REQUEST_VARIABLES } from './match-conditions.ts';
import { expressionOf, typeProblem } from './policies/mutation.ts';
import { POLICY_VARIABLES } from './policies/policy-variables.ts';

/** The compilers of the expressions of webhook configurations and policies. */
export interface ExpressionPrograms {
  readonly requests: RequestPrograms;
  readonly policies: RequestPrograms;
  readonly mutations: RequestPrograms;
}

export function createExpressionPrograms(): ExpressionPrograms {
  return {
    requests: createRequestPrograms(REQUEST_VARIABLES),
    policies: createRequestPrograms(POLICY_VARIABLES),
    mutations: createMutationPrograms(POLICY_VARIABLES),
  };
}

/** Returns the expressions of webhook configurations and policies that do not compile. */
export function expressionErrors(
  { requests, policies, mutations }: ExpressionPrograms,
  kind: Kind,
  object: ApiObject,
): FieldError[] {
  if (kind.group !== 'admissionregistration.k8s.io') return [];
  const isWebhook = /^(validating|mutating)webhookconfigurations$/.test(kind.plural);
  if (!isWebhook) return policyErrors(policies, mutations, object);
  return listAt(object, 'webhooks').flatMap((hook, i) =>
    conditionErrors(requests, listAt(hook, 'matchConditions'), `webhooks[${i}].matchConditions`),
  );
}

function conditionErrors(
  programs: RequestPrograms,
  conditions: readonly JsonObject[],
  path: string,
): FieldError[] {
  return conditions.flatMap((condition, i) =>
    compileErrors(programs, condition, 'expression', `${path}[${i}]`),
  );
}

function policyErrors(programs: RequestPrograms, mutating: RequestPrograms, policy: ApiObject): FieldError[] {
  const variables = listAt(policy, 'spec', 'variables').map((variable) =>
    // Other expressions cannot use a variable that is itself refused.
    textAt(variable, 'expression').trim() === '' ? '' : textAt(variable, 'name'),
  );
  const hasParams = at(policy, 'spec', 'paramKind') !== undefined;
  const declared = { variables, hasParams };
  const each = (list: string, fields: readonly string[]) =>
    listAt(policy, 'spec', list).flatMap((item, i) =>
      fields.flatMap((field) => compileErrors(programs, item, field, `spec.${list}[${i}]`, { declared })),
    );
  const ofVariables = listAt(policy, 'spec', 'variables').flatMap((variable, i) =>
    // A variable may use the variables before it.
    compileErrors(programs, variable, 'expression', `spec.variables[${i}]`, {
      declared: { variables: variables.slice(0, i), hasParams },
    }),
  );
  const mutations = listAt(policy, 'spec', 'mutations').flatMap((mutation, i) => {
    const { field } = expressionOf(mutation);
    return compileErrors(mutating, at(mutation, field), 'expression', `spec.mutations[${i}].${field}`, {
      declared,
      problemOf: (type) => typeProblem(mutation, type),
    });
  });
  return [
    ...conditionErrors(programs, listAt(policy, 'spec', 'matchConditions'), 'spec.matchConditions'),
    ...ofVariables,
    ...each('validations', ['expression', 'messageExpression']),
    ...each('auditAnnotations', ['valueExpression']),
    ...mutations,
  ];
}

/** The names that a policy declares in addition to the request's variables. */
interface Declared {
  readonly variables: readonly string[];
  readonly hasParams: boolean;
}

/** Returns the name that an expression reads and its policy does not declare; null if there is none. */
function undeclared(expression: string, { variables, hasParams }: Declared): string | null {
  const code = expression.replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/g, '""');
  if (!hasParams && /(?<![\w.])params\b/.test(code)) return "undeclared reference to 'params'";
  for (const [, name = ''] of code.matchAll(/(?<![\w.])variables\s*\.\s*\??([A-Za-z_]\w*)/g)) {
    if (variables.includes(name)) continue;
    return variables.every((one) => one === '')
      ? "undeclared reference to 'variables'"
      : `undefined field '${name}'`;
  }
  return null;
}

function compileErrors(
  programs: RequestPrograms,
  object: unknown,
  field: string,
  path: string,
  { declared, problemOf }: { declared?: Declared; problemOf?: (type: string) => string | null } = {},
): FieldError[] {
  const expression = textAt(object, field);
  if (expression.trim() === '') return [];
  try {
    const { type } = programs.compile(expression);
    const missing = declared ? undeclared(expression, declared) : null;
    if (missing) throw new CelError(missing);
    const problem = problemOf?.(type) ?? null;
    return problem ? [invalid(`${path}.${field}`, expression, problem)] : [];
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return [invalid(`${path}.${field}`, expression, `compilation failed: ERROR: ${error.message}`)];
  }
}

import { CelError } from '../cel/cel-error.ts';
import type { RequestPrograms } from '../cel/request-program.ts';
import { type ApiObject, at, type JsonObject, listAt, textAt } from '../object.ts';
import { type FieldError, invalid, invalidObject } from '../status-error.ts';
import type { AdmissionPlugin } from './plugin.ts';
import { expressionOf, typeProblem } from './policies/mutation.ts';

/** Refuses webhook configurations and policies with expressions that do not compile. */
export function createExpressionCheck(
  requests: RequestPrograms,
  policies: RequestPrograms,
  mutations: RequestPrograms,
): AdmissionPlugin {
  return {
    name: 'ExpressionCheck',
    handles: ({ resource, operation, subresource }) =>
      resource.group === 'admissionregistration.k8s.io' &&
      subresource === '' &&
      (operation === 'CREATE' || operation === 'UPDATE'),
    validate({ object, resource, kind }) {
      if (!object) return;
      const errors =
        resource.resource === 'validatingwebhookconfigurations' ||
        resource.resource === 'mutatingwebhookconfigurations'
          ? listAt(object, 'webhooks').flatMap((hook, i) =>
              conditionErrors(requests, listAt(hook, 'matchConditions'), `webhooks[${i}].matchConditions`),
            )
          : policyErrors(policies, mutations, object);
      if (errors.length === 0) return;
      const names = { group: resource.group, kind: kind.kind, plural: resource.resource };
      throw invalidObject(names, object.metadata.name ?? '', errors);
    },
  };
}

function conditionErrors(
  programs: RequestPrograms,
  conditions: readonly JsonObject[],
  path: string,
): FieldError[] {
  return conditions.flatMap((condition, i) =>
    expressionErrors(programs, condition, 'expression', `${path}[${i}]`),
  );
}

function policyErrors(programs: RequestPrograms, mutating: RequestPrograms, policy: ApiObject): FieldError[] {
  const variables = listAt(policy, 'spec', 'variables').map((variable) =>
    // Other expressions cannot use a variable that is itself refused.
    textAt(variable, 'expression') === '' ? '' : textAt(variable, 'name'),
  );
  const hasParams = at(policy, 'spec', 'paramKind') !== undefined;
  const declared = { variables, hasParams };
  const each = (list: string, fields: readonly string[]) =>
    listAt(policy, 'spec', list).flatMap((item, i) =>
      fields.flatMap((field) => expressionErrors(programs, item, field, `spec.${list}[${i}]`, { declared })),
    );
  const ofVariables = listAt(policy, 'spec', 'variables').flatMap((variable, i) =>
    // A variable may use the variables before it.
    expressionErrors(programs, variable, 'expression', `spec.variables[${i}]`, {
      declared: { variables: variables.slice(0, i), hasParams },
    }),
  );
  const mutations = listAt(policy, 'spec', 'mutations').flatMap((mutation, i) => {
    const { field } = expressionOf(mutation);
    return expressionErrors(mutating, at(mutation, field), 'expression', `spec.mutations[${i}].${field}`, {
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

function expressionErrors(
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

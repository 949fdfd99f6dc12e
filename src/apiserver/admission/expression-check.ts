import { CelError, type RequestPrograms } from '../cel/request-program.ts';
import { type ApiObject, at, type JsonObject, listAt, textAt } from '../object.ts';
import { type FieldError, invalid, invalidObject } from '../status-error.ts';
import type { AdmissionPlugin } from './plugin.ts';

/** Refuses webhook configurations and policies whose expressions cannot be compiled. */
export function createExpressionCheck(requests: RequestPrograms, policies: RequestPrograms): AdmissionPlugin {
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
          : policyErrors(policies, object);
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

function policyErrors(programs: RequestPrograms, policy: ApiObject): FieldError[] {
  const each = (list: string, fields: readonly string[]) =>
    listAt(policy, 'spec', list).flatMap((item, i) =>
      fields.flatMap((field) => expressionErrors(programs, item, field, `spec.${list}[${i}]`)),
    );
  const mutations = listAt(policy, 'spec', 'mutations').flatMap((mutation, i) =>
    ['applyConfiguration', 'jsonPatch'].flatMap((field) =>
      expressionErrors(programs, at(mutation, field), 'expression', `spec.mutations[${i}].${field}`),
    ),
  );
  return [
    ...conditionErrors(programs, listAt(policy, 'spec', 'matchConditions'), 'spec.matchConditions'),
    ...each('variables', ['expression']),
    ...each('validations', ['expression', 'messageExpression']),
    ...each('auditAnnotations', ['valueExpression']),
    ...mutations,
  ];
}

function expressionErrors(
  programs: RequestPrograms,
  object: unknown,
  field: string,
  path: string,
): FieldError[] {
  const expression = textAt(object, field);
  if (expression.trim() === '') return [];
  try {
    programs.compile(expression);
    return [];
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return [invalid(`${path}.${field}`, expression, `compilation failed: ERROR: ${error.message}`)];
  }
}

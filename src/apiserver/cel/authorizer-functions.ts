import type { Environment } from '@marcbachmann/cel-js';
import type { User } from '../authentication/user.ts';
import type { Authorizer, Decision } from '../authorization/authorizer.ts';

/** The variable `authorizer` of policies: queries the rights of a user. */
export class AuthorizerValue {
  readonly authorizer: Authorizer;
  readonly user: User;
  constructor(authorizer: Authorizer, user: User) {
    this.authorizer = authorizer;
    this.user = user;
  }
}

/** An incomplete query: authorizer.group('apps').resource('deployments').namespace('x'). */
class QuestionValue {
  readonly of: AuthorizerValue;
  readonly parts: Readonly<Record<string, string>>;
  constructor(of: AuthorizerValue, parts: Readonly<Record<string, string>>) {
    this.of = of;
    this.parts = parts;
  }
  with(parts: Readonly<Record<string, string>>): QuestionValue {
    return new QuestionValue(this.of, { ...this.parts, ...parts });
  }
}

class DecisionValue {
  readonly decision: Decision;
  constructor(decision: Decision) {
    this.decision = decision;
  }
}

/** Returns the query about the resource of the request itself, the variable `authorizer.requestResource`. */
export function requestResource(
  of: AuthorizerValue,
  parts: {
    readonly group: string;
    readonly resource: string;
    readonly subresource: string;
    readonly namespace: string;
    readonly name: string;
  },
): unknown {
  return new QuestionValue(of, parts);
}

/** Registers the authorizer library (k8s.io/apiserver/pkg/cel/library/authz.go). */
export function registerAuthorizer(environment: Environment): void {
  const [authorizer, question, decision] = [
    'kubernetes.authorization.Authorizer',
    'kubernetes.authorization.Check',
    'kubernetes.authorization.Decision',
  ];
  environment.registerType(question, { ctor: QuestionValue, fields: {} });
  environment.registerType(authorizer, { ctor: AuthorizerValue, fields: { requestResource: question } });
  environment.registerType(decision, { ctor: DecisionValue, fields: {} });
  environment.registerFunction(
    `${authorizer}.path(string): ${question}`,
    (of: AuthorizerValue, path: string) => new QuestionValue(of, { path }),
  );
  environment.registerFunction(
    `${authorizer}.group(string): ${question}`,
    (of: AuthorizerValue, group: string) => new QuestionValue(of, { group }),
  );
  environment.registerFunction(
    `${authorizer}.serviceAccount(string, string): ${authorizer}`,
    ({ authorizer }: AuthorizerValue, namespace: string, name: string) =>
      new AuthorizerValue(authorizer, {
        name: `system:serviceaccount:${namespace}:${name}`,
        groups: ['system:serviceaccounts', `system:serviceaccounts:${namespace}`, 'system:authenticated'],
      }),
  );
  for (const part of ['resource', 'subresource', 'namespace', 'name']) {
    environment.registerFunction(
      `${question}.${part}(string): ${question}`,
      (of: QuestionValue, value: string) => of.with({ [part]: value }),
    );
  }
  environment.registerFunction(
    `${question}.check(string): ${decision}`,
    async ({ of, parts }: QuestionValue, verb: string) =>
      new DecisionValue(
        await of.authorizer.authorize({
          user: of.user,
          verb,
          isResourceRequest: parts['path'] === undefined,
          apiGroup: parts['group'] ?? '',
          apiVersion: '*',
          resource: parts['resource'] ?? '',
          subresource: parts['subresource'] ?? '',
          namespace: parts['namespace'] ?? '',
          name: parts['name'] ?? '',
          path: parts['path'] ?? '',
        }),
      ),
  );
  environment.registerFunction(
    `${decision}.allowed(): bool`,
    ({ decision }: DecisionValue) => decision.verdict === 'allow',
  );
  environment.registerFunction(
    `${decision}.reason(): string`,
    ({ decision }: DecisionValue) => decision.reason,
  );
  environment.registerFunction(
    `${decision}.errored(): bool`,
    ({ decision }: DecisionValue) => decision.error !== undefined,
  );
  environment.registerFunction(
    `${decision}.error(): string`,
    ({ decision }: DecisionValue) => decision.error ?? '',
  );
}

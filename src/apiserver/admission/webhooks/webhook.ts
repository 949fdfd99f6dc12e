import { isObject, type JsonObject, listAt, textAt } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import { rulesIn } from '../rule-match.ts';

/** A webhook of a configuration; the schema has set upstream's defaults. */
export interface Webhook {
  readonly type: 'Mutating' | 'Validating';
  /** Names of the configuration and of the webhook in it. */
  readonly configuration: string;
  readonly name: string;
  readonly clientConfig: JsonObject;
  readonly rules: readonly JsonObject[];
  readonly failurePolicy: 'Fail' | 'Ignore';
  readonly matchPolicy: 'Exact' | 'Equivalent';
  readonly namespaceSelector: unknown;
  readonly objectSelector: unknown;
  readonly matchConditions: readonly JsonObject[];
  readonly sideEffects: string;
  readonly timeoutSeconds: number;
  readonly reinvocationPolicy: 'Never' | 'IfNeeded';
}

/** Returns the webhooks of a type in the order in which they are called: by the names of their configurations. */
export function webhooksOf(view: ObjectView, type: Webhook['type']): Webhook[] {
  const collection = `${type.toLowerCase()}webhookconfigurations.admissionregistration.k8s.io`;
  return view.list(collection).flatMap((configuration) =>
    listAt(configuration, 'webhooks').map((hook) => ({
      type,
      configuration: configuration.metadata.name ?? '',
      name: textAt(hook, 'name'),
      clientConfig: isObject(hook['clientConfig']) ? hook['clientConfig'] : {},
      rules: rulesIn(hook, 'rules'),
      failurePolicy: hook['failurePolicy'] === 'Ignore' ? 'Ignore' : 'Fail',
      matchPolicy: hook['matchPolicy'] === 'Exact' ? 'Exact' : 'Equivalent',
      namespaceSelector: hook['namespaceSelector'],
      objectSelector: hook['objectSelector'],
      matchConditions: listAt(hook, 'matchConditions'),
      sideEffects: textAt(hook, 'sideEffects'),
      timeoutSeconds: typeof hook['timeoutSeconds'] === 'number' ? hook['timeoutSeconds'] : 10,
      reinvocationPolicy: hook['reinvocationPolicy'] === 'IfNeeded' ? 'IfNeeded' : 'Never',
    })),
  );
}

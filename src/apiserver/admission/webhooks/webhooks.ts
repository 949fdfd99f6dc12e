import { messageOf } from '../../../lib/errors.ts';
import type { Logger } from '../../../lib/log.ts';
import type { Authorizer } from '../../authorization/authorizer.ts';
import { CelError } from '../../cel/cel-error.ts';
import type { RequestPrograms } from '../../cel/request-program.ts';
import { applyJsonPatch } from '../../json-patch.ts';
import { type ApiObject, equal, type JsonObject } from '../../object.ts';
import type { ObjectView } from '../../object-view.ts';
import type { ResourceRegistry } from '../../services.ts';
import { badRequest, StatusError } from '../../status-error.ts';
import { replaceObject, reviewedAs } from '../equivalent-object.ts';
import { conditionsMatch, requestVariables } from '../match-conditions.ts';
import type { AdmissionAttributes, AdmissionPlugin } from '../plugin.ts';
import type { ReinvokedPlugin } from '../reinvocation.ts';
import {
  type GroupVersionResource,
  isExempt,
  matchingResource,
  namespaceMatches,
  objectMatches,
} from '../rule-match.ts';
import { deniedBy, type ReviewResponse, readResponse, reviewRequest } from './admission-review.ts';
import { type Webhook, webhooksOf } from './webhook.ts';
import type { WebhookClient } from './webhook-client.ts';

export interface WebhookOptions {
  readonly view: ObjectView;
  readonly registry: ResourceRegistry;
  readonly client: WebhookClient;
  readonly programs: RequestPrograms;
  readonly authorizer: Authorizer;
  /** Drops unknown fields and sets defaults after a patch. */
  readonly complete: (object: ApiObject) => void;
  readonly randomUuid: () => string;
  readonly logger: Logger;
}

const hooksIn = (view: ObjectView, attributes: AdmissionAttributes, type: Webhook['type']): Webhook[] =>
  isExempt(attributes) ? [] : webhooksOf(view, type);

/**
 * Calls the mutating webhooks in order, each with the result of the previous one; webhooks with reinvocationPolicy
 * IfNeeded are called once more if the object was changed after their call.
 */
export function createMutatingWebhooks(options: WebhookOptions): ReinvokedPlugin {
  return {
    handles: (attributes) => hooksIn(options.view, attributes, 'Mutating').length > 0,
    begin(attributes) {
      const { object } = attributes;
      /** Webhooks that may be called again, with the object as each of them left it. */
      const seen = new Map<Webhook, unknown>();
      let changed = false;
      const ask = async (hook: Webhook) => {
        const resource = await matches(options, hook, attributes);
        if (!resource) return;
        const response = await call(options, hook, attributes, resource);
        if (
          response?.patch &&
          object &&
          (await applyPatch(options, hook, attributes, resource, response.patch))
        )
          changed = true;
        seen.set(hook, structuredClone(object));
      };
      return {
        async first() {
          for (const hook of hooksIn(options.view, attributes, 'Mutating')) await ask(hook);
          return changed;
        },
        async again() {
          for (const [hook, left] of [...seen]) {
            if (hook.reinvocationPolicy === 'IfNeeded' && !equal(left, object)) await ask(hook);
          }
        },
      };
    },
  };
}

/** Calls the validating webhooks concurrently; each of them can refuse the write. */
export function createValidatingWebhooks(options: WebhookOptions): AdmissionPlugin {
  return {
    name: 'ValidatingAdmissionWebhook',
    handles: (attributes) => hooksIn(options.view, attributes, 'Validating').length > 0,
    async validate(attributes) {
      const results = await Promise.allSettled(
        hooksIn(options.view, attributes, 'Validating').map(async (hook) => {
          const resource = await matches(options, hook, attributes);
          if (resource) await call(options, hook, attributes, resource);
        }),
      );
      for (const result of results) if (result.status === 'rejected') throw result.reason;
    },
  };
}

/** Returns the resource under which a webhook matches a write; null if it does not match. */
async function matches(
  { view, registry, programs, authorizer }: WebhookOptions,
  hook: Webhook,
  attributes: AdmissionAttributes,
): Promise<GroupVersionResource | null> {
  if (!namespaceMatches(hook.namespaceSelector, attributes, view)) return null;
  if (!objectMatches(hook.objectSelector, attributes)) return null;
  const resource = matchingResource(hook.rules, hook.matchPolicy, attributes, registry);
  if (!resource || hook.matchConditions.length === 0) return resource;
  try {
    const holds = await conditionsMatch(
      hook.matchConditions,
      programs,
      requestVariables(attributes, authorizer),
    );
    return holds ? resource : null;
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    if (hook.failurePolicy === 'Ignore') return null;
    throw new StatusError(
      403,
      'Forbidden',
      `admission webhook ${JSON.stringify(hook.name)} denied the request: failed to evaluate match conditions: ${error.message}`,
    );
  }
}

/**
 * Calls a webhook. Resolves to null if the call failed and its failure policy is Ignore. Throws StatusError for a
 * refusal.
 */
async function call(
  options: WebhookOptions,
  hook: Webhook,
  attributes: AdmissionAttributes,
  resource: GroupVersionResource,
): Promise<ReviewResponse | null> {
  if (attributes.dryRun && hook.sideEffects !== 'None' && hook.sideEffects !== 'NoneOnDryRun') {
    throw badRequest(`admission webhook ${JSON.stringify(hook.name)} does not support dry run`);
  }
  const uid = options.randomUuid();
  let response: ReviewResponse;
  try {
    const review = reviewRequest(uid, attributes, await reviewedAs(options.registry, attributes, resource));
    response = readResponse(await options.client.post(hook, review), uid, hook.type === 'Mutating');
  } catch (error) {
    const message = `failed calling webhook ${JSON.stringify(hook.name)}: ${messageOf(error)}`;
    if (hook.failurePolicy === 'Fail') {
      throw new StatusError(500, 'InternalError', `Internal error occurred: ${message}`, {
        causes: [{ message }],
      });
    }
    options.logger.warn({ webhook: hook.name, configuration: hook.configuration }, `${message}; ignored`);
    return null;
  }
  for (const warning of response.warnings) attributes.warn(warning);
  if (!response.allowed) throw deniedBy(hook.name, response.status);
  return response;
}

/** Applies a webhook's patch to the object of a write; returns true if that changed the object. */
async function applyPatch(
  { registry, complete }: WebhookOptions,
  hook: Webhook,
  attributes: AdmissionAttributes,
  wanted: GroupVersionResource,
  patch: unknown[],
): Promise<boolean> {
  const { object } = attributes;
  if (!object) {
    throw new StatusError(
      500,
      'InternalError',
      `Internal error occurred: admission webhook ${JSON.stringify(hook.name)} attempted to modify the object, which is not supported for this operation`,
    );
  }
  const shown = (await reviewedAs(registry, attributes, wanted)).object ?? object;
  let patched: JsonObject;
  try {
    patched = applyJsonPatch(shown as unknown as JsonObject, patch);
  } catch (error) {
    throw new StatusError(
      500,
      'InternalError',
      `Internal error occurred: failed to apply the patch of webhook ${JSON.stringify(hook.name)}: ${messageOf(error)}`,
    );
  }
  const changed = patched as unknown as ApiObject;
  return replaceObject(registry, complete, object, attributes, wanted, changed);
}

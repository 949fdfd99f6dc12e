import { randomUUID } from 'node:crypto';
import { messageOf } from '../../lib/errors.ts';
import type { WebhookClient } from '../admission/webhooks/webhook-client.ts';
import type { Converter } from '../kind.ts';
import { type ApiObject, isObject, type JsonObject, textAt } from '../object.ts';
import { StatusError } from '../status-error.ts';
import type { Conversion } from './definition.ts';

/** Upstream's default; a definition has no field for it. */
const TIMEOUT_SECONDS = 30;
const REVIEW_VERSIONS = ['v1', 'v1beta1'];

/**
 * Converts the objects of a definition with its webhook (apiextensions.k8s.io ConversionReview). An object is converted
 * once for each version; the result is cached for the object's lifetime.
 */
export function createWebhookConverter(
  webhook: NonNullable<Conversion['webhook']>,
  client: Pick<WebhookClient, 'post'>,
): Converter {
  const converted = new WeakMap<ApiObject, Map<string, ApiObject>>();
  const known = (object: ApiObject, apiVersion: string) => converted.get(object)?.get(apiVersion);
  return {
    async prepare(objects, apiVersion) {
      const missing = objects.filter((one) => one.apiVersion !== apiVersion && !known(one, apiVersion));
      const [first] = missing;
      if (!first) return;
      try {
        const answers = await review(webhook, client, missing, apiVersion);
        for (const [i, object] of missing.entries()) {
          const versions = converted.get(object) ?? new Map<string, ApiObject>();
          versions.set(apiVersion, checked(object, answers[i], apiVersion));
          converted.set(object, versions);
        }
      } catch (error) {
        throw new StatusError(
          500,
          'InternalError',
          `Internal error occurred: conversion webhook for ${first.apiVersion}, Kind=${first.kind} failed: ${messageOf(error)}`,
        );
      }
    },
    converted(object, apiVersion) {
      const { resourceVersion } = object.metadata;
      const found = known(object, apiVersion);
      if (!found) throw new Error(`an object of ${object.apiVersion} was not converted to ${apiVersion}`);
      // The version is known when the object is stored, possibly after its conversion.
      const metadata = { ...found.metadata, ...(resourceVersion ? { resourceVersion } : {}) };
      return { ...structuredClone(found), metadata: structuredClone(metadata) };
    },
  };
}

/** Calls the webhook. Throws Error with the reason if it does not convert every object. */
async function review(
  { clientConfig, conversionReviewVersions }: NonNullable<Conversion['webhook']>,
  client: Pick<WebhookClient, 'post'>,
  objects: readonly ApiObject[],
  desiredAPIVersion: string,
): Promise<unknown[]> {
  const version = conversionReviewVersions.find((one) => REVIEW_VERSIONS.includes(one));
  if (version === undefined) throw new Error('no supported conversion review versions');
  const uid = randomUUID();
  const apiVersion = `apiextensions.k8s.io/${version}`;
  const request = { uid, desiredAPIVersion, objects };
  const body = { kind: 'ConversionReview', apiVersion, request } as unknown as JsonObject;
  const hook = { clientConfig: { ...clientConfig } as JsonObject, timeoutSeconds: TIMEOUT_SECONDS };
  const answer = await client.post(hook, body);
  if (!isObject(answer) || answer['kind'] !== 'ConversionReview' || answer['apiVersion'] !== apiVersion) {
    throw new Error(`expected webhook response of ${apiVersion}, Kind=ConversionReview`);
  }
  const { response } = answer;
  if (!isObject(response)) throw new Error('no response provided');
  if (response['uid'] !== uid) {
    throw new Error(`expected response.uid=${JSON.stringify(uid)}, got ${JSON.stringify(response['uid'])}`);
  }
  const result = isObject(response['result']) ? response['result'] : {};
  if (result['status'] !== 'Success') {
    const message = textAt(result, 'message');
    throw new Error(message || `response.result.status was '${textAt(result, 'status')}', not 'Success'`);
  }
  const converted = Array.isArray(response['convertedObjects']) ? response['convertedObjects'] : [];
  if (converted.length !== objects.length) {
    throw new Error(`the webhook returned ${converted.length} objects, expected ${objects.length}`);
  }
  return converted;
}

/**
 * Checks a converted object: in metadata, only labels and annotations may differ. Throws Error if other fields differ.
 */
function checked(original: ApiObject, answer: unknown, apiVersion: string): ApiObject {
  if (!isObject(answer) || !isObject(answer['metadata'])) {
    throw new Error('missing metadata in converted object');
  }
  if (answer['apiVersion'] !== apiVersion) {
    throw new Error(
      `invalid groupVersion (expected ${apiVersion}, received ${String(answer['apiVersion'])})`,
    );
  }
  if (answer['kind'] !== original.kind) {
    throw new Error(`must have the same kind: ${String(answer['kind'])} != ${original.kind}`);
  }
  const { metadata } = answer;
  for (const field of ['name', 'namespace', 'uid'] as const) {
    if (textAt(metadata, field) !== (original.metadata[field] ?? '')) {
      throw new Error(
        `must have the same ${field}: ${textAt(metadata, field)} != ${original.metadata[field] ?? ''}`,
      );
    }
  }
  const { labels: _labels, annotations: _annotations, ...kept } = original.metadata;
  return {
    ...(answer as unknown as ApiObject),
    metadata: {
      ...kept,
      ...textMap(metadata, 'labels'),
      ...textMap(metadata, 'annotations'),
    },
  };
}

function textMap(metadata: JsonObject, field: 'labels' | 'annotations'): object {
  const map = metadata[field];
  if (map === undefined || map === null) return {};
  if (!isObject(map)) throw new Error(`invalid metadata.${field} in converted object`);
  for (const [key, value] of Object.entries(map)) {
    if (typeof value !== 'string') throw new Error(`metadata.${field}[${key}] must be a string`);
  }
  return { [field]: map };
}

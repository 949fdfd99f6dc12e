import type { Clock } from '../../lib/clock.ts';
import { messageOf } from '../../lib/errors.ts';
import type { Logger } from '../../lib/log.ts';
import type { WebhookClient } from '../admission/webhooks/webhook-client.ts';
import { type ApiObject, equal } from '../object.ts';
import type { ResourceStore } from '../resource-store.ts';
import { storedResource } from '../routes/builtin-resources.ts';
import type { ResourceRegistry } from '../services.ts';
import type { Store } from '../store.ts';
import { type CustomKind, customKinds } from './custom-kind.ts';
import { customScale } from './custom-scale.ts';
import type { CustomSchemas } from './custom-schemas.ts';
import { CLEANUP_FINALIZER, hasCondition, specOf, statusOf } from './definition.ts';
import { definitionConditions } from './definition-conditions.ts';
import { DEFINITION_KIND } from './definition-kind.ts';
import type { EvaluateRule } from './object-rules.ts';

export interface DefinitionsOptions {
  readonly store: Store;
  readonly resources: ResourceStore;
  readonly registry: ResourceRegistry;
  readonly schemas: CustomSchemas;
  readonly evaluateRule: EvaluateRule;
  /** Calls conversion webhooks. */
  readonly webhooks: Pick<WebhookClient, 'post'>;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The resources of a definition in the route table, and the version of the definition from which they were built. */
interface Served {
  readonly resourceVersion: string;
  readonly kinds: readonly CustomKind[];
}

/**
 * Serves the resources of CustomResourceDefinitions: accepts their names, adds and removes their resources, deletes the
 * objects of a deleted definition. Processes every change of a definition after the request that made it.
 */
export function serveDefinitions(options: DefinitionsOptions): { close(): void } {
  const { store, resources, registry, schemas, clock, logger } = options;
  const { collection } = DEFINITION_KIND;
  const served = new Map<string, Served>();
  const watched = new Map<string, () => void>();
  let scheduled = false;
  let closed = false;

  function schedule(): void {
    if (scheduled || closed) return;
    scheduled = true;
    queueMicrotask(() => {
      scheduled = false;
      if (!closed) reconcile();
    });
  }

  function reconcile(): void {
    const definitions = store.list(collection).map(({ object }) => object);
    let changed = false;
    for (const definition of definitions) {
      const name = definition.metadata.name ?? '';
      try {
        accept(definition, definitions);
        if (definition.metadata.deletionTimestamp !== undefined) cleanUp(definition);
        const current = store.get(collection, `/${name}`)?.object;
        if (current && serve(current)) changed = true;
      } catch (error) {
        logger.error({ definition: name, error: messageOf(error) }, 'failed to serve a custom resource');
      }
    }
    const names = new Set(definitions.map(({ metadata }) => metadata.name ?? ''));
    for (const [name, { kinds }] of served) {
      if (names.has(name)) continue;
      for (const { kind } of kinds) registry.remove(kind.group, kind.version, kind.plural);
      served.delete(name);
      watched.get(name)?.();
      watched.delete(name);
      changed = true;
    }
    if (changed) schemas.setKinds([...served.values()].flatMap(({ kinds }) => kinds));
  }

  /** Writes the conditions that follow from the names of the other definitions. */
  function accept(definition: ApiObject, others: readonly ApiObject[]): void {
    const { conditions, acceptedNames } = definitionConditions(definition, others, new Date(clock.now()));
    const status = statusOf(definition);
    const next = {
      ...status,
      conditions,
      acceptedNames,
      storedVersions: status.storedVersions ?? [],
    };
    if (equal(next, definition['status'])) return;
    resources.update(
      DEFINITION_KIND,
      '',
      definition.metadata.name ?? '',
      (current) => ({ ...current, status: next }),
      {
        part: 'status',
      },
    );
  }

  /** Adds the resources of an established definition; returns true if the table changed. */
  function serve(definition: ApiObject): boolean {
    const name = definition.metadata.name ?? '';
    if (!hasCondition(definition, 'Established')) return false;
    const before = served.get(name);
    const identity = JSON.stringify([
      specOf(definition),
      statusOf(definition).acceptedNames,
      definition.metadata.deletionTimestamp !== undefined,
    ]);
    if (before?.resourceVersion === identity) return false;
    const kinds = customKinds(definition, options.evaluateRule, options.webhooks);
    const isTerminating = definition.metadata.deletionTimestamp !== undefined;
    for (const { kind, version } of kinds) {
      const scale = version.subresources?.scale;
      const resource = storedResource(kind, scale ? [customScale(scale)] : []);
      const { create: _create, ...readable } = resource.handlers;
      registry.add(isTerminating ? { ...resource, handlers: readable } : resource);
    }
    for (const { kind } of before?.kinds ?? []) {
      if (!kinds.some((one) => one.kind.version === kind.version && one.kind.plural === kind.plural)) {
        registry.remove(kind.group, kind.version, kind.plural);
      }
    }
    served.set(name, { resourceVersion: identity, kinds });
    return true;
  }

  /** Deletes the objects of a definition, and removes its finalizer after the last one. */
  function cleanUp(definition: ApiObject): void {
    const name = definition.metadata.name ?? '';
    const objects = `${specOf(definition).names.plural}.${specOf(definition).group}`;
    const [custom] = customKinds(definition, options.evaluateRule, null);
    if (custom) {
      const kind = custom.kind.view?.of ?? custom.kind;
      for (const { object } of store.list(objects)) {
        if (object.metadata.deletionTimestamp !== undefined) continue;
        resources.delete(kind, object.metadata.namespace ?? '', object.metadata.name ?? '', {});
      }
    }
    if (store.count(objects) > 0) {
      // Objects with finalizers are removed later.
      if (!watched.has(name)) watched.set(name, store.listen(objects, schedule));
      return;
    }
    resources.update(DEFINITION_KIND, '', name, (current) => ({
      ...current,
      metadata: {
        ...current.metadata,
        finalizers: (current.metadata.finalizers ?? []).filter((one) => one !== CLEANUP_FINALIZER),
      },
    }));
  }

  const stop = store.listen(collection, schedule);
  reconcile();
  return {
    close() {
      closed = true;
      stop();
      for (const end of watched.values()) end();
    },
  };
}

import { timestamp } from '../kube/timestamp.ts';
import type { Clock } from '../lib/clock.ts';
import { preparePresented, presented } from './conversion.ts';
import { afterDelete } from './deletion.ts';
import { fieldMatcher, readsOnlyMetadata } from './field-selectors.ts';
import { apiVersionOf, type Kind, type StrategyContext } from './kind.ts';
import { isCleared } from './managed-fields.ts';
import { type ApiObject, equal } from './object.ts';
import { limitToPart } from './parts.ts';
import { qosClass } from './pod-qos.ts';
import { type LabelMatcher, parseLabelSelector } from './selectors.ts';
import type { ServiceAllocator } from './service-allocator.ts';
import {
  alreadyExists,
  conflict,
  type FieldError,
  invalid,
  invalidObject,
  notFound,
  required,
  StatusError,
} from './status-error.ts';
import type { Store, StoredObject } from './store.ts';
import type {
  DeleteRequest,
  Filter,
  ListRequest,
  Part,
  PreparedWrite,
  WriteOptions,
} from './store-requests.ts';
import { validateObject } from './validation/kinds.ts';
import { objectNameProblems, validateMetadata } from './validation/metadata.ts';
import { validateEphemeralContainers, validateResize } from './validation/pod-parts.ts';
import { validateStatus } from './validation/statuses.ts';
import { listPage, type Page, type PageRequest, pageCandidates } from './verbs/list-page.ts';
import { checkPreconditions, isGone, keepSystemMetadata, modified } from './write-rules.ts';

const LASTING_NAMESPACES = ['default', 'kube-system', 'kube-public'];

/** The verbs of the API on stored objects, common to all kinds. Every method is atomic; refusals are StatusErrors. */
export class ResourceStore {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #randomUuid: () => string;
  readonly #services: ServiceAllocator;
  readonly #complete: (object: ApiObject) => void;
  readonly #expressionErrors: (kind: Kind, object: ApiObject) => FieldError[];

  constructor(
    store: Store,
    services: ServiceAllocator,
    clock: Clock,
    options: {
      readonly randomUuid: () => string;
      /** Converts an object to its type's canonical form, with defaults. */
      readonly complete: (object: ApiObject) => void;
      /** Compiles the CEL expressions of an object. */
      readonly expressionErrors: (kind: Kind, object: ApiObject) => FieldError[];
    },
  ) {
    this.#store = store;
    this.#services = services;
    this.#clock = clock;
    this.#randomUuid = options.randomUuid;
    this.#complete = options.complete;
    this.#expressionErrors = options.expressionErrors;
  }

  get(kind: Kind, namespace: string, name: string): StoredObject {
    const stored = this.#store.get(kind.collection, `${namespace}/${name}`);
    if (!stored) throw notFound(kind, name);
    return stored;
  }

  filter(kind: Kind, request: ListRequest): Filter {
    const labels: LabelMatcher | null = request.labelSelector
      ? parseLabelSelector(request.labelSelector)
      : null;
    const fields = request.fieldSelector ? fieldMatcher(kind, request.fieldSelector) : null;
    const ofVersion = kind.isCustom === true && !readsOnlyMetadata(request.fieldSelector ?? '');
    return {
      namespace: request.namespace,
      converted: ofVersion && kind.converter !== undefined,
      matches: (object) =>
        (!labels || labels((object.metadata.labels as Record<string, string> | undefined) ?? {})) &&
        // The fields of a custom kind are those of the requested version.
        (!fields || fields(ofVersion ? presented(kind, object) : object)),
    };
  }

  /** Throws StatusError 500 if the field selector reads converted objects and they cannot be converted. */
  async list(kind: Kind, request: ListRequest): Promise<Page> {
    const filter = this.filter(kind, request);
    const page: PageRequest = {
      collection: kind.collection,
      namespace: request.namespace,
      matches: filter.matches,
      everything: !request.labelSelector && !request.fieldSelector,
      limit: request.limit ?? 0,
      continue: request.continue ?? '',
      exactly: request.exactly ?? null,
    };
    const candidates = pageCandidates(this.#store, page);
    if (filter.converted) {
      await preparePresented(
        kind,
        candidates.objects.map(({ object }) => object),
      );
    }
    return listPage(candidates, page);
  }

  create(kind: Kind, namespace: string, object: ApiObject, options: WriteOptions = {}): StoredObject {
    return this.prepareCreate(kind, namespace, object, options).commit();
  }

  /** Sets the name of a new object from its generateName. */
  #name(object: ApiObject): void {
    const { metadata } = object;
    if (!metadata.name && metadata.generateName) metadata.name = metadata.generateName + this.suffix();
  }

  /** Sets the initial state of a new object and validates it. Throws StatusError if it cannot be created. */
  prepareCreate(kind: Kind, namespace: string, object: ApiObject, options: WriteOptions = {}): PreparedWrite {
    this.#name(object);
    const { metadata } = object;
    if (!metadata.name && kind.nameIfAbsent) metadata.name = this.#randomUuid();
    const name = metadata.name ?? '';
    const errors = this.#nameErrors(options.requested ?? kind, name);
    const key = `${namespace}/${name}`;
    if (kind.namespaced) this.#checkNamespace(kind, namespace, name);

    metadata.namespace = namespace;
    if (!kind.namespaced) delete metadata.namespace;
    metadata.uid = this.#randomUuid();
    metadata.creationTimestamp = this.#timestamp();
    delete metadata.deletionTimestamp;
    delete metadata.deletionGracePeriodSeconds;
    delete metadata.selfLink;
    delete metadata.resourceVersion;
    if (kind.generationFields.length > 0 && !kind.withoutFirstGeneration) delete metadata.generation;
    if (kind.generationFields.length > 0 && !kind.withoutFirstGeneration) metadata.generation = 1;
    if (kind.status && !kind.statusAtCreation) delete object['status'];
    const context = this.#context();
    this.#complete(object);
    kind.prepareCreate?.(object, context);
    errors.push(...this.#validate(kind, object, null, options.requested ?? kind));
    if (errors.length > 0) throw invalidObject(kind, name, errors);
    const checkAbsent = () => {
      if (this.#store.get(kind.collection, key)) throw alreadyExists(kind, name);
    };
    // Admission precedes the check for an existing object; only a Service checks first, so that nothing is allocated in
    // vain.
    if (kind.collection === 'services') checkAbsent();
    const allocation = kind.collection === 'services' ? this.#services.allocate(object, null, options) : null;
    if (allocation && allocation.errors.length > 0) throw invalidObject(kind, name, allocation.errors);
    kind.settle?.(object);
    if (isCleared(object)) delete object.metadata.managedFields;
    const release = () => allocation?.release();
    return {
      object,
      release,
      commit: () => {
        try {
          checkAbsent();
          if (kind.namespaced) this.#checkNamespace(kind, namespace, name);
        } catch (error) {
          release();
          throw error;
        }
        if (options.dryRun) {
          release();
          return this.#unstored(kind, key, object);
        }
        allocation?.assign();
        return this.#store.put(kind.collection, key, object);
      },
    };
  }

  /**
   * Replaces an object, or the part of it that a subresource may change. `change` builds the new object from the
   * current one, so that a patch applies to the current state.
   */
  update(
    kind: Kind,
    namespace: string,
    name: string,
    change: (current: ApiObject) => ApiObject,
    options: WriteOptions = {},
  ): StoredObject {
    const before = this.get(kind, namespace, name);
    return this.prepareUpdate(kind, before, change(structuredClone(before.object)), options).commit();
  }

  /**
   * Validates an update of `before`, and sets the fields that only the server sets. Throws StatusError if it is
   * refused.
   */
  prepareUpdate(
    kind: Kind,
    before: StoredObject,
    object: ApiObject,
    options: WriteOptions = {},
  ): PreparedWrite {
    const current = options.current ?? before.object;
    const name = current.metadata.name ?? '';
    const part = options.part ?? 'main';
    checkPreconditions(kind, current, object);
    object.apiVersion = apiVersionOf(kind);
    object.kind = kind.kind;
    keepSystemMetadata(object, current);
    this.#complete(object);
    if (part === 'main') {
      if (kind.status) {
        if (current['status'] === undefined) delete object['status'];
        else object['status'] = current['status'];
      }
      kind.prepareUpdate?.(object, current, this.#context());
    } else limitToPart(kind, part, object, current);
    if (part !== 'status' && part !== 'finalize' && part !== 'binding') {
      const changed = kind.generationFields.some((field) => !equal(object[field], current[field]));
      if (changed) object.metadata.generation = (current.metadata.generation ?? 0) + 1;
    }
    const errors = this.#validatePart(kind, part, object, current, options.requested ?? kind);
    if (errors.length > 0) throw invalidObject(kind, name, errors);
    const allocation =
      kind.collection === 'services' && part === 'main'
        ? this.#services.allocate(object, current, options)
        : null;
    if (allocation && allocation.errors.length > 0) throw invalidObject(kind, name, allocation.errors);
    options.record?.(current, object);
    kind.settle?.(object);
    if (isCleared(object)) delete object.metadata.managedFields;
    const release = () => allocation?.release();
    return {
      object,
      release,
      commit: () => {
        if (options.dryRun) {
          release();
          return this.#unstored(kind, before.key, object);
        }
        if (this.#store.get(kind.collection, before.key) !== before) {
          release();
          throw modified(kind, name);
        }
        if (isGone(object)) {
          release();
          const last = this.#store.remove(kind.collection, before.key);
          this.#services.forget(kind, current);
          return last ?? before;
        }
        // A write without changes creates no new version (as upstream) and wakes no watcher.
        if (equal(object, current)) return before;
        allocation?.assign();
        const stored = this.#store.put(kind.collection, before.key, object);
        allocation?.finish();
        return stored;
      },
    };
  }

  /** Deletes an object or begins its deletion; the result shows which. */
  delete(
    kind: Kind,
    namespace: string,
    name: string,
    request: DeleteRequest,
  ): { stored: StoredObject; gone: boolean } {
    const before = this.get(kind, namespace, name);
    const current = before.object;
    if (kind.collection === 'namespaces' && LASTING_NAMESPACES.includes(name)) {
      throw new StatusError(
        403,
        'Forbidden',
        `namespaces ${JSON.stringify(name)} is forbidden: this namespace may not be deleted`,
        { name, kind: 'namespaces' },
      );
    }
    const { uid, resourceVersion } = current.metadata;
    // Upstream names the kind here, not the resource.
    const preconditionFailed = (field: string, wanted: string, record: unknown, since: string) =>
      conflict(
        { ...kind, plural: kind.kind },
        name,
        `the ${field} in the precondition (${wanted}) does not match the ${field} in record (${record}). The object might have been ${since}`,
      );
    if (request.uid && request.uid !== uid)
      throw preconditionFailed('UID', request.uid, uid, 'deleted and then recreated');
    if (request.resourceVersion !== undefined && request.resourceVersion !== resourceVersion)
      throw preconditionFailed('ResourceVersion', request.resourceVersion, resourceVersion, 'modified');
    const { object, gone } = afterDelete(kind, current, request, this.#clock.now());
    if (request.dryRun) return { stored: this.#unstored(kind, before.key, object), gone };
    if (gone) {
      // Watchers see a pod's grace period of 0 before the pod goes, as with upstream.
      if (!equal(object, current)) this.#store.put(kind.collection, before.key, object);
      const last = this.#store.remove(kind.collection, before.key, object);
      this.#services.forget(kind, current);
      return { stored: last ?? before, gone: true };
    }
    if (equal(object, current)) return { stored: before, gone: false };
    return { stored: this.#store.put(kind.collection, before.key, object), gone: false };
  }

  #validatePart(
    kind: Kind,
    part: Part,
    object: ApiObject,
    current: ApiObject,
    requested: Kind,
  ): FieldError[] {
    switch (part) {
      case 'main':
        return this.#validate(kind, object, current, requested);
      case 'ephemeralcontainers':
        return validateEphemeralContainers(object, current);
      case 'resize':
        return validateResize(object, current, qosClass);
      case 'status':
        return validateStatus(kind, object, current);
      default:
        return [];
    }
  }

  #nameErrors(kind: Kind, name: string): FieldError[] {
    if (name === '') return [required('metadata.name', 'name or generateName is required')];
    return objectNameProblems(kind, name).map((problem) => invalid('metadata.name', name, problem));
  }

  #validate(kind: Kind, object: ApiObject, before: ApiObject | null, requested: Kind): FieldError[] {
    return [
      ...validateMetadata(requested, object, before),
      ...validateObject(kind, object, before, requested),
      ...(kind.validate?.(object, before) ?? []),
      ...this.#expressionErrors(kind, object),
    ];
  }

  #checkNamespace(kind: Kind, namespace: string, name: string): void {
    const stored = this.#store.get('namespaces', `/${namespace}`);
    if (!stored) {
      throw notFound({ group: '', kind: 'Namespace', plural: 'namespaces' }, namespace);
    }
    if (stored.object.metadata.deletionTimestamp === undefined) return;
    throw new StatusError(
      403,
      'Forbidden',
      `${kind.plural} ${JSON.stringify(name)} is forbidden: unable to create new content in namespace ${namespace} because it is being terminated`,
      {
        name,
        kind: kind.plural,
        causes: [
          {
            reason: 'NamespaceTerminating',
            message: `namespace ${namespace} is being terminated`,
            field: 'metadata.namespace',
          },
        ],
      },
    );
  }

  #unstored(kind: Kind, key: string, object: ApiObject): StoredObject {
    return {
      collection: kind.collection,
      key,
      version: this.#store.version,
      object,
      json: JSON.stringify(object),
    };
  }

  #context(): StrategyContext {
    return {
      suffix: () => this.suffix(),
      now: new Date(this.#clock.now()),
      get: (collection: string, key: string) => this.#store.get(collection, key)?.object,
      list: (collection: string) => this.#store.list(collection).map(({ object }) => object),
    };
  }

  #timestamp(afterSeconds = 0): string {
    return timestamp(this.#clock.now() + afterSeconds * 1000);
  }

  /** Returns five characters without vowels and look-alikes, as upstream's names.SimpleNameGenerator. */
  suffix(): string {
    const alphabet = 'bcdfghjklmnpqrstvwxz2456789';
    const bytes = Buffer.from(this.#randomUuid().replaceAll('-', ''), 'hex');
    return [...bytes.subarray(0, 5)].map((byte) => alphabet[byte % alphabet.length]).join('');
  }
}

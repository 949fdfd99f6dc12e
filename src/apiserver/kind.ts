import { type ApiObject, at, textAt } from './object.ts';
import type { FieldError } from './status-error.ts';
import type { Printer } from './tables/printer.ts';

/** State that the strategies of a kind may read in addition to the object. */
export interface StrategyContext {
  readonly now: Date;
  /** Returns the stored object of a kind, for checks across objects. */
  get(collection: string, key: string): ApiObject | undefined;
  /** Returns all stored objects of a collection. */
  list(collection: string): readonly ApiObject[];
  /** Returns five random characters, as generateName appends. */
  suffix(): string;
}

/** The definition of an API kind. */
export interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  /** Default: the kind followed by "List". */
  readonly listKind?: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  /** Collection in which its objects are stored; two kinds may share one (events). */
  readonly collection: string;
  /**
   * Has a status subresource: writes to the object do not change the status, writes to the status change nothing else.
   */
  readonly status: boolean;
  /** A new object keeps the status that the client sends (nodes). */
  readonly statusAtCreation?: boolean;
  /** Fields of metadata that a status write preserves, in addition to those that only the server sets. */
  readonly statusKeeps?: readonly ('labels' | 'annotations' | 'finalizers' | 'ownerReferences')[];
  readonly scale: boolean;
  /** Changes of these top-level fields increment the generation. */
  readonly generationFields: readonly string[];
  /** A new object has no generation; the first change sets it. */
  readonly withoutFirstGeneration?: boolean;
  /** Finalizers need no domain (kinds that upstream validates with the rules of apimachinery only). */
  readonly anyFinalizers?: boolean;
  /** Fields for selectors, in addition to metadata.name and metadata.namespace. */
  readonly fields: Readonly<Record<string, (object: ApiObject) => string>>;
  /** Builds the refusal of an unsupported field, if upstream uses special words for this kind. */
  readonly fieldRefusal?: (field: string) => string;
  /** Selectors do not support metadata.namespace (upstream: nodes, namespaces and a few others). */
  readonly withoutNamespaceField?: boolean;
  /** A new object without a name is named by a random UUID. */
  readonly nameIfAbsent?: boolean;
  /** Sets the initial state of a new object. */
  readonly prepareCreate?: (object: ApiObject, context: StrategyContext) => void;
  readonly prepareUpdate?: (object: ApiObject, before: ApiObject, context: StrategyContext) => void;
  /** The version is deprecated: the warning for every request to it. */
  readonly deprecation?: string;
  /** Objects of this kind have no effect: the warning at their creation, listed in docs/limits.md. */
  readonly notice?: string | ((object: ApiObject) => string | null);
  /**
   * Rule for names: "subdomain" (RFC 1123 with dots, the default), "label" (without dots), "label1035", "path", or an
   * IP address.
   */
  readonly names: 'subdomain' | 'label' | 'label1035' | 'path' | 'ip';
  /** Updates must contain the resourceVersion (upstream's AllowUnconditionalUpdate is false). */
  readonly needsVersion?: boolean;
  /** DELETE returns the object even if it is removed immediately (pods, services, …); otherwise a Status. */
  readonly answersDeleted?: boolean;
  /** The whole collection can be deleted in one request. Default: true. */
  readonly deleteCollection?: boolean;
  /**
   * Propagation of a DELETE that names none: Orphan keeps dependents; Unsupported: the kind has none, and any policy is
   * ignored. Default: the garbage collector deletes dependents.
   */
  readonly propagation?: 'Orphan' | 'Unsupported';
  /** The warning for a DELETE that names no propagation policy. */
  readonly propagationWarning?: string;
  /** Finalizers that deletion adds to an object, so that a controller can clean up. */
  readonly deletionFinalizers?: readonly string[];
  /** Defined by a CustomResourceDefinition: no strategic merge patches, no Protobuf. */
  readonly isCustom?: boolean;
  /** Columns of `kubectl get`, if the kind defines its own. */
  readonly printer?: Printer;
  /** Validates the object, in addition to the table of validators. */
  readonly validate?: (object: ApiObject, before: ApiObject | null) => FieldError[];
  /** Validates what a write of the status subresource makes of an object. */
  readonly validateStatus?: (object: ApiObject, before: ApiObject) => FieldError[];
  /** Brings a valid object into the form in which it is stored, after its managers' fields are known. */
  readonly settle?: (object: ApiObject) => void;
  /** PUT of an absent object creates it. */
  readonly createOnUpdate?: boolean;
  /** Converts objects between versions, if a pure function cannot. */
  readonly converter?: Converter;
  /** Returns the object as shown to clients, if it differs from the stored one: defaults that were added later. */
  readonly shown?: (object: ApiObject) => ApiObject;
  /** Set if the kind is a view of another kind's objects under different names. */
  readonly view?: {
    readonly of: Kind;
    toStorage(object: ApiObject): ApiObject;
    fromStorage(object: ApiObject): ApiObject;
  };
}

/**
 * Converts objects with an external call (a webhook): `prepare` makes the call, then `converted` returns the results
 * synchronously.
 */
export interface Converter {
  /** Throws StatusError 500 if the objects cannot be converted. */
  prepare(objects: readonly ApiObject[], apiVersion: string): Promise<void>;
  /** Returns a copy of the object in another version. Throws Error if it was not prepared. */
  converted(object: ApiObject, apiVersion: string): ApiObject;
}

export interface KindOptions extends Partial<Omit<Kind, 'group' | 'version' | 'kind' | 'plural'>> {}

/** Builds an entry of the table of kinds. */
export function defineKind(
  apiVersion: string,
  kind: string,
  plural: string,
  options: KindOptions = {},
): Kind {
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  return {
    group: group ?? '',
    version: version ?? '',
    kind,
    plural,
    singular: kind.toLowerCase(),
    shortNames: [],
    categories: [],
    namespaced: true,
    collection: group ? `${plural}.${group}` : plural,
    status: false,
    scale: false,
    generationFields: options.status ? ['spec'] : [],
    fields: {},
    names: 'subdomain',
    ...options,
  };
}

/** Returns "v1" or "apps/v1". */
export function apiVersionOf(kind: Kind): string {
  return kind.group === '' ? kind.version : `${kind.group}/${kind.version}`;
}

/** Builds readers for text fields that are named by their own path. */
export function pathFields(...paths: string[]): Record<string, (object: ApiObject) => string> {
  return Object.fromEntries(
    paths.map((path) => {
      const parts = path.split('.');
      return [
        path,
        (object: ApiObject) => {
          const value = at(object, ...parts);
          return typeof value === 'boolean' || typeof value === 'number'
            ? String(value)
            : textAt(object, ...parts);
        },
      ];
    }),
  );
}

/** Builds readers for booleans; absent booleans read as "false" (fields.Set of upstream's strategies). */
export function booleanFields(...paths: string[]): Record<string, (object: ApiObject) => string> {
  return Object.fromEntries(
    paths.map((path) => [path, (object: ApiObject) => String(at(object, ...path.split('.')) === true)]),
  );
}

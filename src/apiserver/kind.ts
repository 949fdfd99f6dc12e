import { type ApiObject, at, textAt } from './object.ts';
import type { FieldError } from './status-error.ts';
import type { Printer } from './tables/printer.ts';

/** What the strategies of a kind may look at besides the object. */
export interface StrategyContext {
  readonly now: Date;
  /** The stored object of a kind, for checks across objects. */
  get(collection: string, key: string): ApiObject | undefined;
  /** All stored objects of a collection. */
  list(collection: string): readonly ApiObject[];
  /** Five random characters, as generateName appends. */
  suffix(): string;
}

/** A kind of the API: everything that distinguishes it from another. */
export interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  /** Default: the kind with "List" after it. */
  readonly listKind?: string;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly namespaced: boolean;
  /** Where its objects are kept; two kinds may share (events). */
  readonly collection: string;
  /** Has a status subresource: writes to the object leave status alone, writes to the status leave the rest alone. */
  readonly status: boolean;
  /** A new object keeps the status that it comes with (nodes). */
  readonly statusAtCreation?: boolean;
  /** Fields of metadata that a write to the status leaves alone, besides those that only the server sets. */
  readonly statusKeeps?: readonly ('labels' | 'annotations' | 'finalizers' | 'ownerReferences')[];
  readonly scale: boolean;
  /** Changes of these top-level fields count as a new generation. */
  readonly generationFields: readonly string[];
  /** A new object has no generation; it begins with the first change. */
  readonly withoutFirstGeneration?: boolean;
  /** Finalizers need no domain (kinds that upstream checks by the rules of apimachinery alone). */
  readonly anyFinalizers?: boolean;
  /** Fields that selectors may ask for besides metadata.name and metadata.namespace. */
  readonly fields: Readonly<Record<string, (object: ApiObject) => string>>;
  /** The refusal of a field that selectors cannot ask for, where upstream words it in its own way. */
  readonly fieldRefusal?: (field: string) => string;
  /** Selectors may not ask for metadata.namespace (upstream: nodes, namespaces and few others). */
  readonly withoutNamespaceField?: boolean;
  /** Brings a new object into its first state. */
  readonly prepareCreate?: (object: ApiObject, context: StrategyContext) => void;
  readonly prepareUpdate?: (object: ApiObject, before: ApiObject, context: StrategyContext) => void;
  /** The version is deprecated: the warning that answers every request for it. */
  readonly deprecation?: string;
  /** Nothing carries its objects out: the warning that answers their creation, listed in docs/limits.md. */
  readonly notice?: string | ((object: ApiObject) => string | null);
  /** Names must be: "subdomain" (RFC 1123 with dots, the default), "label" (without dots), "label1035", "path", or an IP address. */
  readonly names: 'subdomain' | 'label' | 'label1035' | 'path' | 'ip';
  /** Updates must name the version that they change (upstream's AllowUnconditionalUpdate is false). */
  readonly needsVersion?: boolean;
  /** The answer to DELETE is the object, also when it is gone at once (pods, services, …); else a Status. */
  readonly answersDeleted?: boolean;
  /** One request can delete the whole collection. Default: true. */
  readonly deleteCollection?: boolean;
  /** Finalizers that deletion puts on an object: a controller finishes what it stands for. */
  readonly deletionFinalizers?: readonly string[];
  /** Defined by a CustomResourceDefinition: no strategic merge patches, no Protobuf. */
  readonly isCustom?: boolean;
  /** Columns of `kubectl get`, where the kind brings them itself. */
  readonly printer?: Printer;
  /** Checks of the kind itself, besides those of the table of validators. */
  readonly validate?: (object: ApiObject, before: ApiObject | null) => FieldError[];
  /** PUT of an object that is not there creates it. */
  readonly createOnUpdate?: boolean;
  /** Changes objects from one version into another, where that takes more than a function of them. */
  readonly converter?: Converter;
  /** What clients see of an object that is kept under this kind, where that is more: defaults that came later. */
  readonly shown?: (object: ApiObject) => ApiObject;
  /** It is another kind's objects, seen under other names. */
  readonly view?: {
    readonly of: Kind;
    toStorage(object: ApiObject): ApiObject;
    fromStorage(object: ApiObject): ApiObject;
  };
}

/** Converts objects by asking somebody (a webhook): first `prepare`, then `converted` gives the results at once. */
export interface Converter {
  /** Throws StatusError 500 when the objects cannot be converted. */
  prepare(objects: readonly ApiObject[], apiVersion: string): Promise<void>;
  /** A copy of the object in another version. Throws Error when it was not prepared. */
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

/** "v1" or "apps/v1". */
export function apiVersionOf(kind: Kind): string {
  return kind.group === '' ? kind.version : `${kind.group}/${kind.version}`;
}

/** Readers for fields that are plain text at their own path. */
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

/** Readers for booleans, which are "false" where they are absent (fields.Set of upstream's strategies). */
export function booleanFields(...paths: string[]): Record<string, (object: ApiObject) => string> {
  return Object.fromEntries(
    paths.map((path) => [path, (object: ApiObject) => String(at(object, ...path.split('.')) === true)]),
  );
}

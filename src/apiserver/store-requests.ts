import type { DeletionRequest } from './deletion.ts';
import type { Kind } from './kind.ts';
import type { ApiObject } from './object.ts';
import type { StoredObject } from './store.ts';

export interface DeleteRequest extends DeletionRequest {
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly dryRun?: boolean;
}

export interface ListRequest {
  readonly namespace?: string;
  readonly labelSelector?: string;
  readonly fieldSelector?: string;
  readonly limit?: number;
  readonly continue?: string;
  /** The version of the list; absent: the latest. */
  readonly exactly?: number;
}

/** The part of an object that a write changes: all but the status, or the part of one subresource. */
export type Part = 'main' | 'status' | 'finalize' | 'binding' | 'ephemeralcontainers' | 'resize' | 'approval';

export interface WriteOptions {
  /** Validates and answers, but stores nothing. */
  readonly dryRun?: boolean;
  /** The converted object, if the stored object is in an older version than its kind's. */
  readonly current?: ApiObject;
  /** The kind that the client requested, if it is a view of the stored kind. */
  readonly requested?: Kind;
  /** Default: "main". */
  readonly part?: Part;
  /**
   * Records in a changed object, before it is stored, which manager changed which fields; for a new object, its creator
   * calls it.
   */
  readonly record?: (before: ApiObject | null, after: ApiObject) => void;
}

/** A validated write before it is stored, for validating admission. */
export interface PreparedWrite {
  /** The object to be stored. */
  readonly object: ApiObject;
  /** Stores the object. Throws StatusError 409 if it was changed or created since the preparation. */
  commit(): StoredObject;
  /** Releases what was allocated for the object. */
  release(): void;
}

/** Selects the objects of a list or watch. */
export interface Filter {
  readonly namespace: string | undefined;
  /** Reads fields that a webhook converts: call `preparePresented` before `matches`. */
  readonly converted: boolean;
  matches(object: ApiObject): boolean;
}

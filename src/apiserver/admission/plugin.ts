import type { User } from '../authentication/user.ts';
import type { ApiObject, JsonObject } from '../object.ts';

export type AdmissionOperation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

/** A write before it is stored, as admission.k8s.io/v1 AdmissionRequest describes it. */
export interface AdmissionAttributes {
  readonly operation: AdmissionOperation;
  /** Kind of the object in the request: "autoscaling/v1 Scale" for a scale subresource. */
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly resource: { readonly group: string; readonly version: string; readonly resource: string };
  readonly subresource: string;
  readonly namespace: string;
  /** "" for a creation whose name the server generates. */
  readonly name: string;
  /** The object to be stored; null for DELETE. `mutate` changes it in place; `validate` must not change it. */
  readonly object: ApiObject | null;
  /** The stored object; null for CREATE and CONNECT. Must not be changed. */
  readonly oldObject: ApiObject | null;
  /** CreateOptions, UpdateOptions, PatchOptions or DeleteOptions. */
  readonly options: JsonObject;
  readonly dryRun: boolean;
  readonly user: User;
  /** Adds a `Warning:` header to the response. */
  warn(text: string): void;
}

/**
 * Changes or refuses writes before they are stored. All mutating plugins run before the server's own defaults and
 * validation, all validating plugins after them. Throws StatusError to refuse a write (`forbidden` formats it as
 * upstream does).
 */
export interface AdmissionPlugin {
  readonly name: string;
  /** Reports cheaply whether this plugin applies to the write; a write that no plugin handles costs nothing. */
  handles(attributes: AdmissionAttributes): boolean;
  mutate?(attributes: AdmissionAttributes): void | Promise<void>;
  validate?(attributes: AdmissionAttributes): void | Promise<void>;
  /** Called if a validated write was refused later or was a dry run: releases the plugin's reservations. */
  release?(attributes: AdmissionAttributes): void;
}

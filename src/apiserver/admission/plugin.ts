import type { User } from '../authentication/authenticator.ts';
import type { ApiObject, JsonObject } from '../object.ts';

export type AdmissionOperation = 'CREATE' | 'UPDATE' | 'DELETE' | 'CONNECT';

/** A write that is about to happen, as admission.k8s.io/v1 AdmissionRequest describes it. */
export interface AdmissionAttributes {
  readonly operation: AdmissionOperation;
  /** Of the object in the request: "autoscaling/v1 Scale" for a scale subresource. */
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  readonly resource: { readonly group: string; readonly version: string; readonly resource: string };
  readonly subresource: string;
  readonly namespace: string;
  /** "" for a creation whose name the server makes. */
  readonly name: string;
  /** The object as it is about to be; null for DELETE. `mutate` changes it in place; `validate` must not. */
  readonly object: ApiObject | null;
  /** The object as it is; null for CREATE and CONNECT. Must not be changed. */
  readonly oldObject: ApiObject | null;
  /** CreateOptions, UpdateOptions, PatchOptions or DeleteOptions. */
  readonly options: JsonObject;
  readonly dryRun: boolean;
  readonly user: User;
  /** Adds a `Warning:` header to the answer. */
  warn(text: string): void;
}

/**
 * Changes or refuses writes before they are stored. All mutating plugins run before the server's own defaults and
 * validation, all validating ones after them. Throws StatusError to refuse (`forbidden` words it as upstream).
 */
export interface AdmissionPlugin {
  readonly name: string;
  /** Cheap test whether this plugin takes part; a write that no plugin handles costs nothing. */
  handles(attributes: AdmissionAttributes): boolean;
  mutate?(attributes: AdmissionAttributes): void | Promise<void>;
  validate?(attributes: AdmissionAttributes): void | Promise<void>;
  /** Called when a validated write was refused later or was a dry run: what was reserved is given back. */
  release?(attributes: AdmissionAttributes): void;
}

import type { Kind } from '../kind.ts';
import type { OutgoingResponse } from '../requests/request.ts';
import type { RequestContext } from '../requests/request-context.ts';
import type { ApiServices } from '../services.ts';

export type ResourceVerb =
  | 'get'
  | 'list'
  | 'watch'
  | 'create'
  | 'update'
  | 'patch'
  | 'delete'
  | 'deletecollection';

/** A request for a resource of the route table. */
export interface ResourceContext extends RequestContext {
  readonly resource: Resource;
  readonly kind: Kind;
  /** Namespace of the stored objects: that of the path, or "" for cluster-wide resources. */
  readonly namespace: string;
  /** "" for collections. */
  readonly name: string;
}

export type ResourceHandler = (
  context: ResourceContext,
  services: ApiServices,
) => OutgoingResponse | Promise<OutgoingResponse>;

export type Handlers = { readonly [Verb in ResourceVerb]?: ResourceHandler };

export interface GroupVersionKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** An endpoint below an object: pods/log, deployments/scale. */
export interface Subresource {
  readonly name: string;
  /** The kind of its objects; null: that of the resource. */
  readonly kind: GroupVersionKind | null;
  readonly handlers: Handlers;
  /** Handles requests of every method, streams and upgrades (exec, proxy); discovery lists `connectVerbs`. */
  readonly connect?: ResourceHandler;
  readonly connectVerbs?: readonly ResourceVerb[];
}

/** An entry of the route table: one resource of one group-version. */
export interface Resource {
  readonly kind: Kind;
  readonly handlers: Handlers;
  readonly subresources: ReadonlyMap<string, Subresource>;
  /** Included in the kind's storageVersionHash; false for resources that are not stored (reviews). */
  readonly stored: boolean;
}

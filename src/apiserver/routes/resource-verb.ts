export type ResourceVerb =
  | 'get'
  | 'list'
  | 'watch'
  | 'create'
  | 'update'
  | 'patch'
  | 'delete'
  | 'deletecollection';

export interface GroupVersionKind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

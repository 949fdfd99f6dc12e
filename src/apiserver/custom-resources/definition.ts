import type { ApiObject } from '../object.ts';
import type { PrinterColumn } from './printer-columns.ts';
import type { StructuralSchema } from './structural-schema.ts';

/** Finalizer of a definition until its objects are deleted. */
export const CLEANUP_FINALIZER = 'customresourcecleanup.apiextensions.k8s.io';

export interface DefinitionNames {
  readonly plural: string;
  readonly singular?: string;
  readonly kind: string;
  readonly listKind?: string;
  readonly shortNames?: readonly string[];
  readonly categories?: readonly string[];
}

export interface DefinitionVersion {
  readonly name: string;
  readonly served: boolean;
  readonly storage: boolean;
  readonly deprecated?: boolean;
  readonly deprecationWarning?: string;
  readonly schema?: { readonly openAPIV3Schema?: StructuralSchema };
  readonly subresources?: {
    readonly status?: object;
    readonly scale?: {
      readonly specReplicasPath: string;
      readonly statusReplicasPath: string;
      readonly labelSelectorPath?: string;
    };
  };
  readonly additionalPrinterColumns?: readonly PrinterColumn[];
  readonly selectableFields?: readonly { readonly jsonPath: string }[];
}

export interface Conversion {
  readonly strategy: 'None' | 'Webhook';
  readonly webhook?: {
    readonly conversionReviewVersions: readonly string[];
    readonly clientConfig?: {
      readonly url?: string;
      readonly caBundle?: string;
      readonly service?: {
        readonly namespace: string;
        readonly name: string;
        readonly path?: string;
        readonly port?: number;
      };
    };
  };
}

export interface DefinitionSpec {
  readonly group: string;
  readonly names: DefinitionNames;
  readonly scope: 'Namespaced' | 'Cluster';
  readonly versions: readonly DefinitionVersion[];
  readonly conversion?: Conversion;
  readonly preserveUnknownFields?: boolean;
}

export interface Condition {
  readonly type: string;
  readonly status: 'True' | 'False' | 'Unknown';
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime?: string;
  readonly observedGeneration?: number;
}

export interface DefinitionStatus {
  readonly conditions?: readonly Condition[];
  readonly acceptedNames?: DefinitionNames;
  readonly storedVersions?: readonly string[];
}

/** Returns the spec of a CustomResourceDefinition that has been validated. */
export const specOf = (definition: ApiObject): DefinitionSpec => definition['spec'] as DefinitionSpec;

export const statusOf = (definition: ApiObject): DefinitionStatus =>
  (definition['status'] as DefinitionStatus | undefined) ?? {};

export const hasCondition = (definition: ApiObject, type: string): boolean =>
  statusOf(definition).conditions?.some((one) => one.type === type && one.status === 'True') ?? false;

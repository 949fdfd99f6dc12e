import { validateDefinition } from '../custom-resources/validate-definition.ts';
import type { Kind } from '../kind.ts';
import type { ApiObject } from '../object.ts';
import type { FieldError } from '../status-error.ts';
import {
  validateEndpointSlice,
  validateLease,
  validateNamespace,
  validateNode,
  validatePriorityClass,
  validateSecret,
} from './plain.ts';
import { validatePod } from './pod.ts';
import { validateService } from './service.ts';
import { validateJob, validateWorkload } from './workloads.ts';

/** Checks a new object, or with `before` an update, by the rules of its kind. */
type Validator = (object: ApiObject, before: ApiObject | null) => FieldError[];

const VALIDATORS: Readonly<Record<string, Validator>> = {
  'customresourcedefinitions.apiextensions.k8s.io': validateDefinition,
  namespaces: validateNamespace,
  nodes: validateNode,
  pods: validatePod,
  secrets: validateSecret,
  services: validateService,
  'daemonsets.apps': validateWorkload,
  'deployments.apps': validateWorkload,
  'replicasets.apps': validateWorkload,
  'statefulsets.apps': validateWorkload,
  'jobs.batch': validateJob,
  'leases.coordination.k8s.io': validateLease,
  'endpointslices.discovery.k8s.io': validateEndpointSlice,
  'priorityclasses.scheduling.k8s.io': validatePriorityClass,
};

/** What is wrong with an object of a kind; none for kinds without rules of their own. */
export function validateObject(kind: Kind, object: ApiObject, before: ApiObject | null): FieldError[] {
  return VALIDATORS[kind.collection]?.(object, before) ?? [];
}

import type { TypeDefaults } from '../schema/canonical-form.ts';
import { CLUSTER_DEFAULTS } from './cluster.ts';
import { CORE_DEFAULTS } from './core.ts';
import { WORKLOAD_DEFAULTS } from './workloads.ts';

/** Defaults by type, for every served kind; the defaults of a type are set before those of nested types. */
export const DEFAULTS: Readonly<Record<string, TypeDefaults>> = {
  ...CORE_DEFAULTS,
  ...WORKLOAD_DEFAULTS,
  ...CLUSTER_DEFAULTS,
};

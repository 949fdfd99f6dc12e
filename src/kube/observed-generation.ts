import type { KubeObject } from './types.ts';

/** Returns the field of a status or a condition that names the generation it is about (KEP-5067); none without one. */
export function observedGeneration({ metadata }: KubeObject): { readonly observedGeneration?: number } {
  return metadata?.generation === undefined ? {} : { observedGeneration: metadata.generation };
}

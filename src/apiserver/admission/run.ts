import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';

/** Runs the mutating part of every plugin, in order. */
export async function mutate(
  plugins: readonly AdmissionPlugin[],
  attributes: AdmissionAttributes,
): Promise<void> {
  for (const plugin of plugins) {
    if (plugin.mutate && plugin.handles(attributes)) await plugin.mutate(attributes);
  }
}

/** Runs the validating part of every plugin, in order. */
export async function validate(
  plugins: readonly AdmissionPlugin[],
  attributes: AdmissionAttributes,
): Promise<void> {
  for (const plugin of plugins) {
    if (plugin.validate && plugin.handles(attributes)) await plugin.validate(attributes);
  }
}

/** Notifies the plugins that a validated write was not stored. */
export function release(plugins: readonly AdmissionPlugin[], attributes: AdmissionAttributes): void {
  for (const plugin of plugins) if (plugin.release && plugin.handles(attributes)) plugin.release(attributes);
}

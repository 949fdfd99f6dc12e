import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';

/** The calls of one mutating plugin for one write. */
export interface MutatingRound {
  /** Changes the object; resolves to true if the object changed. */
  first(): Promise<boolean>;
  /** Processes the object again after the other plugins, if its configuration requests that. */
  again(): Promise<void>;
}

/** A plugin that may have to process a write again because others changed the object after it. */
export interface ReinvokedPlugin {
  handles(attributes: AdmissionAttributes): boolean;
  begin(attributes: AdmissionAttributes): MutatingRound;
}

/**
 * Runs plugins in order. If one of them changes the object, runs `rerun` (the server's own plugins) and then each
 * plugin once more, as upstream's reinvocation.
 */
export function createReinvokedPlugins(
  plugins: readonly ReinvokedPlugin[],
  rerun: (attributes: AdmissionAttributes) => Promise<void>,
): AdmissionPlugin {
  return {
    name: 'MutatingAdmission',
    handles: (attributes) => plugins.some((plugin) => plugin.handles(attributes)),
    async mutate(attributes) {
      const rounds = plugins
        .filter((plugin) => plugin.handles(attributes))
        .map((plugin) => plugin.begin(attributes));
      let changed = false;
      for (const round of rounds) if (await round.first()) changed = true;
      if (!changed) return;
      await rerun(attributes);
      for (const round of rounds) await round.again();
    },
  };
}

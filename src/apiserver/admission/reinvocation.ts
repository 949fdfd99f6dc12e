import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';

/** What one mutating plugin does with one write. */
export interface MutatingRound {
  /** Changes the object; true when that made a difference. */
  first(): Promise<boolean>;
  /** Looks at the object again after the others, where its configuration asks for that. */
  again(): Promise<void>;
}

/** A plugin that may have to look again at what it let pass, since others changed it later. */
export interface ReinvokedPlugin {
  handles(attributes: AdmissionAttributes): boolean;
  begin(attributes: AdmissionAttributes): MutatingRound;
}

/**
 * Runs plugins in turn. When one of them has changed the object, `rerun` runs the server's own plugins again, and then
 * each of them once more, as upstream's reinvocation.
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

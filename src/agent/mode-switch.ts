import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { replaceFile } from '../kernel/replace-file.ts';
import type { EventRecorder } from '../kube/events.ts';
import { type Node, RESOURCES } from '../kube/types.ts';
import { type Clock, pause } from '../lib/clock.ts';
import { FairleadError, hasCode, messageOf } from '../lib/errors.ts';
import type { Logger } from '../lib/log.ts';
import { createMutex } from '../lib/semaphore.ts';
import { MODES } from './configuration.ts';
import { availableModes } from './dataplanes.ts';

/** Annotation of a Node: the proxy mode of its agent. */
export const MODE_ANNOTATION = 'fairlead.dev/mode';
/** The file with the mode that wrote to the kernel, so that the next run can remove its rules. */
export const MODE_FILE = 'proxy-mode';
/** The interval of attempts to remove the rules of an agent that has not ended yet. */
const OWNED_MS = 1000;

export interface ModeSwitchOptions {
  readonly stateDir: string;
  /** The initial mode of the agent. */
  readonly mode: Mode;
  readonly open: (mode: Mode) => Promise<Dataplane>;
  /** Replaces the dataplane; the previous one is removed when the new one is complete. */
  readonly switchTo: (dataplane: Dataplane) => Promise<void>;
  /** Called after the mode has changed, or changed back after a failure: the node's configuration may depend on it. */
  readonly onMode: (mode: Mode) => void;
  /** Called after a failed switch, when the new dataplane is removed: the previous mode may need to be programmed again. */
  readonly onKept: () => void;
  readonly node: () => Node;
  readonly events: EventRecorder;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Aborts when the agent ends. */
  readonly signal: AbortSignal;
}

/** The proxy mode of the node. */
export interface ModeSwitch {
  readonly mode: Mode;
  /** Switches the mode, after pending switches. Rejects, and keeps the previous mode, if the new one cannot be programmed. */
  switchMode(mode: Mode): Promise<void>;
  /**
   * Switches to the mode in the node's annotation when the annotation has changed; failures become an event of the node.
   * Other updates of the node may still have the annotation from before a `switchMode`.
   */
  follow(node: Node): void;
  /**
   * Programs another mode in place of this one until the next agent runs, without changing the mode of the node. No
   * other switch follows. Rejects, and keeps the mode, if the other one cannot be programmed.
   */
  standIn(other: Mode): Promise<void>;
  /** Removes the rules of a previous run's mode, if it was another. Call it after the first programming. */
  removeEarlier(open: (mode: Mode) => Promise<Dataplane>): Promise<void>;
}

export function createModeSwitch(options: ModeSwitchOptions): ModeSwitch {
  const { stateDir, open, switchTo, onMode, onKept, node, events, clock, logger, signal } = options;
  const file = join(stateDir, MODE_FILE);
  const switches = createMutex();
  let mode = options.mode;
  /** The annotation in the last update of the node. */
  let followed: string | undefined;
  /** The annotation to which the last switch failed: each update of the node repeats it. */
  let failed: string | undefined;

  let isEnding = false;

  const save = () => {
    try {
      replaceFile(file, mode);
    } catch (error) {
      // The switch has happened: without the file, only a later agent does not know which mode to remove.
      logger.error({ err: error }, `failed to save the proxy mode: ${messageOf(error)}`);
    }
  };

  /** Rejects, and removes the rules of `next`, if it cannot be programmed. */
  async function program(next: Dataplane, onFailed: () => void): Promise<void> {
    try {
      await switchTo(next);
    } catch (error) {
      onFailed();
      await next.remove().finally(() => next.close());
      onKept();
      throw error;
    }
  }

  async function change(wanted: Mode): Promise<void> {
    if (isEnding) throw new FairleadError('the agent is ending', { op: 'switch mode', code: 'ended' });
    if (wanted === mode) return;
    const before = mode;
    const next = await open(wanted);
    mode = wanted;
    onMode(mode);
    await program(next, () => {
      mode = before;
      onMode(mode);
    });
    save();
    logger.info({ from: before, to: mode }, 'mode switched');
    events.event(node(), 'Normal', 'ModeSwitched', `the proxy mode is now ${mode}`, RESOURCES.nodes);
  }

  return {
    get mode() {
      return mode;
    },
    switchMode: (wanted) =>
      switches.run(() => {
        failed = undefined;
        return change(wanted);
      }),
    follow({ metadata }) {
      const wanted = metadata?.annotations?.[MODE_ANNOTATION];
      if (wanted === followed && wanted !== failed) return;
      followed = wanted;
      // The next agent reads the annotation at its start.
      if (wanted === undefined || isEnding) return;
      void switches.run(async () => {
        failed = undefined;
        try {
          await change(checkMode(wanted));
        } catch (error) {
          failed = wanted;
          logger.error(
            { err: error, wanted },
            `failed to switch to mode ${wanted}, ${mode} stays: ${messageOf(error)}`,
          );
          events.event(node(), 'Warning', 'ModeNotSwitched', messageOf(error), RESOURCES.nodes);
        }
      });
    },
    standIn: (other) =>
      switches.run(async () => {
        isEnding = true;
        const next = await open(other);
        // First: rules that the next agent does not know of would stay.
        replaceFile(file, other);
        await program(next, save);
        logger.info({ mode, standIn: other }, 'the agent is ending: another mode handles new connections');
      }),
    async removeEarlier(openEarlier) {
      const remove = async () => {
        if (isEnding) return;
        const earlier = availableModes().find((one) => one === readOptional(file));
        if (earlier !== undefined && earlier !== mode) {
          const dataplane = await openEarlier(earlier);
          await dataplane.remove({ succeeded: true }).finally(() => dataplane.close());
        }
        save();
      };
      for (let attempt = 1; !signal.aborted; attempt++) {
        try {
          await switches.run(remove);
          return;
        } catch (error) {
          if (attempt === 1)
            logger.error(
              { err: error },
              `failed to remove the rules of an earlier mode: ${messageOf(error)}`,
            );
          if (!hasCode(error, 'EPERM')) return;
          // A previous agent that has not ended yet owns them.
          await pause(clock, OWNED_MS, signal);
        }
      }
    },
  };
}

/** Returns the mode in a node's annotation; null: none, or not an available one. */
export function modeOf(node: Node): Mode | null {
  const wanted = (node.metadata?.annotations as Record<string, string> | undefined)?.[MODE_ANNOTATION];
  return availableModes().find((mode) => mode === wanted) ?? null;
}

function checkMode(text: string): Mode {
  const mode = MODES.find((one) => one === text);
  if (mode) return mode;
  throw new FairleadError(`annotation ${MODE_ANNOTATION}: ${JSON.stringify(text)} is not a mode`, {
    op: 'switch mode',
    code: 'no-such-mode',
    hint: `use one of ${availableModes().join(', ')}`,
  });
}

function readOptional(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return '';
    throw error;
  }
}

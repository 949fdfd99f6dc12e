import type { ClusterAccess } from '../cluster/cluster-access.ts';
import { readModeRequest } from '../cluster/mode-change.ts';
import { type Client, hasReason } from '../kube/client.ts';
import { type ConfigMap, RESOURCES } from '../kube/types.ts';
import type { Clock } from '../lib/clock.ts';
import { FairleadError } from '../lib/errors.ts';
import { LEARN_NAMESPACE, type Lesson, type LessonView, type Prediction, type Step } from './lesson.ts';
import { type LessonCluster, readNodes, readView } from './lesson-cluster.ts';
import { LESSONS } from './lessons.ts';
import { fillIn } from './names.ts';
import { waitingPod } from './objects.ts';
import { createPreparations } from './preparations.ts';
import { FIRST_MODE, PROGRESS, progressIn } from './progress.ts';

/** A lesson in the list. */
export interface LessonEntry {
  readonly name: string;
  readonly title: string;
  readonly summary: string;
  readonly steps: number;
  /** Steps that are done; null: it has not begun. */
  readonly done: number | null;
  readonly state: 'not begun' | 'begun' | 'finished';
  /** The title of the step that the learner is at; null: it has not begun, or is finished. */
  readonly at: string | null;
}

/** The step that the learner is at. */
export interface OpenStep {
  /** From 1. */
  readonly number: number;
  readonly title: string;
  readonly text: readonly string[];
  /** With the cluster's names and addresses filled in. */
  readonly commands: readonly string[];
  /** The remaining task of the learner; null: there is nothing to check. */
  readonly missing: string | null;
  readonly repair: Step['repair'] | null;
  readonly predict: Prediction | null;
  readonly expected: readonly string[];
}

export interface OpenLesson extends LessonEntry {
  /** The title of the step that this call has found done; null: none. */
  readonly finished: string | null;
  /** Why the answer to the question of that step is right; null: it had none. */
  readonly seen: string | null;
  /** Null: the lesson is finished. */
  readonly step: OpenStep | null;
}

/**
 * `stay`: shows the current step; `check`: goes on if it is done; `next`: also if there is nothing to check; `skip`: goes on
 * without the check.
 */
export type Advance = 'stay' | 'check' | 'next' | 'skip';

/** The lessons on a cluster. All errors are FairleadError, or ApiError of the API server. */
export interface Course {
  list(): Promise<LessonEntry[]>;
  /** Begins a lesson, or goes on with it. */
  open(name: string, advance: Advance): Promise<OpenLesson>;
  /** Removes everything that lessons have created, and returns once nothing is left. */
  reset(): Promise<void>;
}

const CLIENT = 'client';
export function createCourse(options: {
  readonly access: ClusterAccess;
  /** A client with the credentials of `access`. */
  readonly client: Client;
  readonly clock: Clock;
  /** Default: those of Fairlead. */
  readonly lessons?: readonly Lesson[];
}): Course {
  const { access, client, lessons = LESSONS } = options;
  const { until, createIfMissing, carryOut, awaitPods } = createPreparations(options);

  const readProgress = () => ifFound(client.get(RESOURCES.configMaps, PROGRESS, LEARN_NAMESPACE));
  const saveProgress = (data: Record<string, string>) =>
    client.patch<ConfigMap>(
      RESOURCES.configMaps,
      PROGRESS,
      'merge',
      { data },
      { namespace: LEARN_NAMESPACE },
    );
  const entryOf = (map: ConfigMap | null, lesson: Lesson): LessonEntry => {
    const { name, title, summary, steps } = lesson;
    return { name, title, summary, steps: steps.length, ...progressOf(lesson, progressIn(map, lesson).done) };
  };

  async function begin(lesson: Lesson): Promise<void> {
    await createIfMissing(RESOURCES.namespaces, { metadata: { name: LEARN_NAMESPACE } });
    await until(
      () => ifFound(client.get(RESOURCES.serviceAccounts, 'default', LEARN_NAMESPACE)),
      `namespace ${LEARN_NAMESPACE} got no service account`,
    );
    await createIfMissing(RESOURCES.configMaps, {
      metadata: { name: PROGRESS, namespace: LEARN_NAMESPACE },
      data: { [FIRST_MODE]: access.report.state.mode },
    });
    const preparations = [waitingPod(CLIENT), ...lesson.prepare];
    for (const one of preparations) await carryOut(one);
    await awaitPods(preparations);
    await enter(lesson, 0);
  }

  /** Prepares a step, and records that the steps before it are done. */
  async function enter(lesson: Lesson, index: number): Promise<void> {
    const preparations = lesson.steps[index]?.prepare ?? [];
    for (const one of preparations) await carryOut(one);
    await awaitPods(preparations);
    await saveProgress({ [lesson.name]: String(index) });
  }

  return {
    async list() {
      const map = await readProgress();
      return lessons.map((lesson) => entryOf(map, lesson));
    },

    async open(name, advance) {
      const lesson = lessons.find((one) => one.name === name);
      if (!lesson) {
        throw new FairleadError(`no such lesson: ${name}`, {
          op: 'learn',
          code: 'not-found',
          hint: `use one of ${lessons.map((one) => one.name).join(', ')}`,
        });
      }
      let { done } = progressIn(await readProgress(), lesson);
      let finished: Step | null = null;
      let view: LessonView | null = null;
      if (done === null) {
        await begin(lesson);
        done = 0;
      } else {
        const step = lesson.steps[done];
        const checked = step ? await checkStep(options, step, advance) : null;
        if (step && checked?.isDone) {
          finished = step;
          done++;
          await enter(lesson, done);
        } else view = checked?.view ?? null;
      }
      const step = lesson.steps[done];
      const entry = { ...entryOf(null, lesson), ...progressOf(lesson, done) };
      const { title = null, predict } = finished ?? {};
      const opened = step ? await openStep(options, step, done + 1, view) : null;
      return { ...entry, finished: title, seen: predict?.why ?? null, step: opened };
    },

    async reset() {
      const map = await readProgress();
      const first = map?.data?.[FIRST_MODE];
      if (first !== undefined && (await readNodes(options)).some(({ mode }) => mode !== first))
        await access.changeMode(readModeRequest({ mode: first }));
      // Learners' own pods may ignore the request to end, for the usual half minute.
      await client.deleteCollection(RESOURCES.pods, { namespace: LEARN_NAMESPACE, gracePeriodSeconds: 1 });
      try {
        await client.delete(RESOURCES.namespaces, LEARN_NAMESPACE);
      } catch (error) {
        if (hasReason(error, 'NotFound')) return;
        throw error;
      }
      await until(async () => {
        const namespace = await ifFound(client.get(RESOURCES.namespaces, LEARN_NAMESPACE));
        return namespace === null ? true : null;
      }, `namespace ${LEARN_NAMESPACE} was not removed`);
    },
  };
}

/** Decides whether a step is done; `view`: what was read for that. */
async function checkStep(
  cluster: LessonCluster,
  { check }: Step,
  advance: Advance,
): Promise<{ readonly isDone: boolean; readonly view: LessonView | null }> {
  if (advance === 'stay') return { isDone: false, view: null };
  if (advance === 'skip') return { isDone: true, view: null };
  if (check === null) return { isDone: advance === 'next', view: null };
  const view = await readView(cluster, check.asks);
  return { isDone: check.missing(view) === null, view };
}

/** `read`: what was just read to check the step; null: it is read now. */
async function openStep(
  cluster: LessonCluster,
  step: Step,
  number: number,
  read: LessonView | null,
): Promise<OpenStep> {
  const { title, text, commands, check, repair = null, predict = null, expected = [] } = step;
  const view = read ?? (await readView(cluster, check?.asks ?? []));
  const missing = check?.missing(view) ?? null;
  return {
    number,
    title,
    text,
    predict,
    expected,
    commands: commands.map((command) => fillIn(command, view)),
    // The missing part would name the fault.
    missing: repair === null || missing === null ? missing : 'the fault is still there',
    repair: repair && {
      ...repair,
      commands: repair.commands.map((command) => fillIn(command, view)),
    },
  };
}

function progressOf({ steps }: Lesson, done: number | null): Pick<LessonEntry, 'done' | 'state' | 'at'> {
  const step = done === null ? undefined : steps[done];
  const state = done === null ? 'not begun' : step === undefined ? 'finished' : 'begun';
  return { done, state, at: step?.title ?? null };
}

async function ifFound<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found;
  } catch (error) {
    if (hasReason(error, 'NotFound')) return null;
    throw error;
  }
}

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readAtMost } from '../kernel/bounded-file.ts';
import { type KubeObject, RESOURCES, type Resource } from '../kube/types.ts';
import { FairleadError, messageOf } from '../lib/errors.ts';
import type { ExplainVerdict } from '../observe/explanation.ts';
import {
  all,
  deploymentIs,
  everyNodeIn,
  explainedAs,
  noPodSilenced,
  podIs,
  podSilenced,
  podsReady,
  policyExists,
  restarted,
  serviceIs,
} from './checks.ts';
import {
  type Check,
  LEARN_NAMESPACE,
  type Lesson,
  type Prediction,
  type Preparation,
  type Step,
} from './lesson.ts';
import { LESSONS } from './lessons.ts';
import { unknownWords } from './names.ts';

/** Lessons of a teacher: JSON files in a folder, in the format of docs/lessons.md. */

const MAX_FILES = 64;
const MAX_BYTES = 128 << 10;
const MAX_STEPS = 30;
const MAX_LIST = 40;
const MAX_TEXT = 4000;
const NAME = /^[a-z][a-z0-9-]{0,39}$/;
const VERDICTS: readonly ExplainVerdict[] = ['delivered', 'rejected', 'dropped'];
/** The objects that a lesson may create: kinds of its namespace that the checks know. */
const KINDS: Readonly<Record<string, Resource>> = {
  Pod: RESOURCES.pods,
  Deployment: RESOURCES.deployments,
  Service: RESOURCES.services,
  NetworkPolicy: RESOURCES.networkPolicies,
  ConfigMap: RESOURCES.configMaps,
};

/**
 * Reads the lessons of a folder, in the order of the files' names. Throws FairleadError that names the file and the field: what
 * is not in the format is refused, so that no step is left out silently.
 */
export function readOwnLessons(folder: string): Lesson[] {
  let files: string[];
  try {
    files = readdirSync(folder)
      .filter((name) => name.endsWith('.json') && !name.startsWith('.'))
      .sort();
  } catch (error) {
    throw refusal(folder, `the folder cannot be read: ${messageOf(error)}`);
  }
  if (files.length === 0) throw refusal(folder, 'the folder has no lesson: a lesson is a file NAME.json');
  if (files.length > MAX_FILES) throw refusal(folder, `the folder has more than ${MAX_FILES} lessons`);
  const lessons = files.map((name) => readLesson(join(folder, name)));
  const names = new Set(LESSONS.map(({ name }) => name));
  for (const [i, { name }] of lessons.entries()) {
    if (names.has(name))
      throw refusal(join(folder, files[i] ?? ''), `name: another lesson has the name ${name} already`);
    names.add(name);
  }
  return lessons;
}

function readLesson(file: string): Lesson {
  let value: unknown;
  try {
    const { bytes, isCut } = readAtMost(file, MAX_BYTES);
    if (isCut) throw refusal(file, `the file is larger than ${MAX_BYTES} bytes`);
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    if (error instanceof FairleadError && error.op === OP) throw error;
    throw refusal(file, messageOf(error));
  }
  return lessonOf(reader(file, '', value));
}

const OP = 'read lessons';
const refusal = (file: string, problem: string): FairleadError =>
  new FairleadError(`${file}: ${problem}`, {
    op: OP,
    code: 'bad-lesson',
    hint: 'docs/lessons.md describes the format',
  });

/** Reads the fields of an object; `end` refuses those that were not read. */
interface Reader {
  text(key: string, pattern?: RegExp): string;
  /** Null: the field is absent. */
  number(key: string, min: number, max: number): number | null;
  texts(key: string, isNeeded?: boolean): string[];
  object(key: string): Reader | null;
  objects(key: string, max: number): Reader[];
  keys(): string[];
  /** The value as it is, of an object of the API, which the API server checks. */
  raw(key: string): Record<string, unknown> | null;
  end(): void;
  fail(key: string, problem: string): FairleadError;
}

function reader(file: string, path: string, value: unknown): Reader {
  const at = (key: string) => (path === '' ? key : `${path}.${key}`);
  const fail = (key: string, problem: string) => refusal(file, `${at(key)}: ${problem}`);
  if (!isObject(value)) throw refusal(file, `${path === '' ? 'the file' : path}: an object is expected`);
  const read = new Set<string>();
  const take = (key: string): unknown => {
    read.add(key);
    return Object.hasOwn(value, key) ? value[key] : undefined;
  };
  const list = (key: string, max: number): unknown[] => {
    const found = take(key) ?? [];
    if (!Array.isArray(found) || found.length > max)
      throw fail(key, `a list of at most ${max} elements is expected`);
    return found;
  };
  const checkText = (key: string, text: unknown): string => {
    if (typeof text !== 'string' || text === '' || text.length > MAX_TEXT)
      throw fail(key, `a text of 1 to ${MAX_TEXT} characters is expected`);
    // A terminal would carry them out.
    if (/[\p{Cc}\p{Cf}]/u.test(text.replaceAll('\n', ''))) throw fail(key, 'control characters are refused');
    return text;
  };
  return {
    text(key, pattern) {
      const text = checkText(key, take(key));
      if (pattern && !pattern.test(text))
        throw fail(key, `${JSON.stringify(text)} does not match ${pattern}`);
      return text;
    },
    number(key, min, max) {
      const found = take(key);
      if (found === undefined) return null;
      if (!Number.isInteger(found) || (found as number) < min || (found as number) > max)
        throw fail(key, `a whole number from ${min} to ${max} is expected`);
      return found as number;
    },
    texts(key, isNeeded = false) {
      const found = list(key, MAX_LIST).map((one, i) => checkText(`${key}[${i}]`, one));
      if (isNeeded && found.length === 0) throw fail(key, 'a list of texts is expected');
      return found;
    },
    object(key) {
      const found = take(key);
      return found === undefined ? null : reader(file, at(key), found);
    },
    objects: (key, max) => list(key, max).map((one, i) => reader(file, at(`${key}[${i}]`), one)),
    keys: () => Object.keys(value),
    raw(key) {
      const found = take(key);
      if (found !== undefined && !isObject(found)) throw fail(key, 'an object is expected');
      return found ?? null;
    },
    end() {
      const unknown = Object.keys(value).find((key) => !read.has(key));
      if (unknown !== undefined) throw fail(unknown.slice(0, 60), 'the format has no such field');
    },
    fail,
  };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function lessonOf(from: Reader): Lesson {
  const steps = from.objects('steps', MAX_STEPS).map(stepOf);
  if (steps.length === 0) throw from.fail('steps', 'a lesson has at least one step');
  const lesson: Lesson = {
    name: from.text('name', NAME),
    title: from.text('title'),
    summary: from.text('summary'),
    prepare: from.objects('prepare', MAX_LIST).map(preparationOf),
    steps,
  };
  from.end();
  return lesson;
}

function stepOf(from: Reader): Step {
  const prepare = from.objects('prepare', MAX_LIST).map(preparationOf);
  const check = from.object('check');
  const predict = from.object('predict');
  const repair = from.object('repair');
  const expected = from.texts('expected');
  const step: Step = {
    title: from.text('title'),
    text: from.texts('text', true),
    commands: commandsOf(from, 'commands'),
    check: check && checkOf(check),
    ...(prepare.length > 0 ? { prepare } : {}),
    ...(predict ? { predict: predictionOf(predict) } : {}),
    ...(expected.length > 0 ? { expected } : {}),
    ...(repair ? { repair: { text: repair.text('text'), commands: commandsOf(repair, 'commands') } } : {}),
  };
  repair?.end();
  from.end();
  return step;
}

/** Commands are of fairlead and kubectl, as the page and the terminal show them for this cluster. */
function commandsOf(from: Reader, key: string): string[] {
  const commands = from.texts(key, true);
  for (const [i, command] of commands.entries()) {
    if (!/^(?:fairlead|kubectl) /.test(command))
      throw from.fail(`${key}[${i}]`, 'a command begins with "fairlead " or "kubectl "');
    const [unknown] = unknownWords(command);
    if (unknown !== undefined) throw from.fail(`${key}[${i}]`, `${unknown} is unknown`);
  }
  return commands;
}

function predictionOf(from: Reader): Prediction {
  const choices = from.texts('choices', true);
  const answer = from.number('answer', 0, choices.length - 1);
  if (choices.length < 2) throw from.fail('choices', 'at least two are expected');
  if (answer === null) throw from.fail('answer', 'the index of the right choice is expected');
  const prediction = { question: from.text('question'), choices, answer, why: from.text('why') };
  from.end();
  return prediction;
}

function preparationOf(from: Reader): Preparation {
  const [kind] = from.keys();
  if (from.keys().length !== 1) throw from.fail(kind ?? '', 'one of create, patch and silence is expected');
  const preparation = ((): Preparation | null => {
    switch (kind) {
      case 'create': {
        const object = from.raw('create') ?? {};
        const resource = resourceOf(from, object['kind']);
        const metadata = isObject(object['metadata']) ? object['metadata'] : {};
        if (typeof metadata['name'] !== 'string')
          throw from.fail('create.metadata.name', 'a name is expected');
        if (![undefined, LEARN_NAMESPACE].includes(metadata['namespace'] as undefined))
          throw from.fail('create.metadata.namespace', `lessons create objects in ${LEARN_NAMESPACE} only`);
        return {
          kind,
          resource,
          object: { ...object, metadata: { ...metadata, namespace: LEARN_NAMESPACE } } as KubeObject,
        };
      }
      case 'patch': {
        const patch = from.object('patch');
        if (!patch) return null;
        const resource = resourceOf(from, patch.text('kind'));
        const change = { kind, resource, name: patch.text('name', NAME), patch: patch.raw('patch') ?? {} };
        patch.end();
        return change;
      }
      case 'silence':
        return { kind, app: from.text('silence', NAME) };
      default:
        return null;
    }
  })();
  from.end();
  if (preparation === null) throw from.fail(kind ?? '', 'one of create, patch and silence is expected');
  return preparation;
}

function resourceOf(from: Reader, kind: unknown): Resource {
  const known = typeof kind === 'string' && Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined;
  if (known) return known;
  throw from.fail('kind', `one of ${Object.keys(KINDS).join(', ')} is expected`);
}

/** Every field of a check is one condition; all have to be met. */
const CHECKS: Readonly<Record<string, (from: Reader) => Check>> = {
  podsReady: (from) => podsReady(from.text('app', NAME), from.number('count', 0, 100) ?? 1),
  restarted: (from) => restarted(from.text('app', NAME)),
  reaches: (from) => explainedAs({ from: from.text('from'), to: from.text('to') }, 'delivered'),
  explained(from) {
    const question = { from: from.text('from'), to: from.text('to') };
    const verdict = VERDICTS.find((one) => one === from.text('verdict'));
    if (verdict === undefined) throw from.fail('verdict', `one of ${VERDICTS.join(', ')} is expected`);
    return explainedAs(question, verdict);
  },
  exists(from) {
    const kind = from.text('kind');
    const name = from.text('name', NAME);
    const isThere = () => true;
    if (kind === 'Pod') return podIs(name, '', isThere);
    if (kind === 'Deployment') return deploymentIs(name, '', isThere);
    if (kind === 'Service') return serviceIs(name, '', isThere);
    if (kind === 'NetworkPolicy') return policyExists(name);
    throw from.fail('kind', 'one of Pod, Deployment, Service, NetworkPolicy is expected');
  },
  mode: (from) => everyNodeIn(from.text('name', NAME)),
  silenced: (from) => podSilenced(from.text('app', NAME)),
  notSilenced: (from) => noPodSilenced(from.text('app', NAME)),
};

function checkOf(from: Reader): Check {
  const names = from.keys();
  const checks = names.map((name) => {
    const read = Object.hasOwn(CHECKS, name) ? CHECKS[name] : undefined;
    const fields = from.object(name);
    if (!read || !fields)
      throw from.fail(name.slice(0, 60), `a check is one of ${Object.keys(CHECKS).join(', ')}`);
    const check = read(fields);
    fields.end();
    return check;
  });
  if (checks.length === 0) throw from.fail('', 'a check has at least one condition');
  return all(...checks);
}

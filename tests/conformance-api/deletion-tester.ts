import { combinations, TAKES_FULL_PRODUCT } from '../testing/pairwise.ts';
import { difference } from './compare.ts';
import { type BaseObject, baseObjects, pathOf } from './objects.ts';
import { decoded, type Oracle } from './oracle.ts';
import { inParallel } from './rows.ts';

/** Finalizers that an object has before its deletion. */
const BEFORE: readonly (readonly string[])[] = [
  [],
  ['example.com/keep'],
  ['orphan'],
  ['foregroundDeletion'],
  ['example.com/keep', 'orphan'],
];

/** Kinds without rules of their own take turns: each of these has one of so many pairs of finalizers and way. */
const OTHERS_ONE_OF = 6;

/** Kinds whose deletion has rules of its own, and one without: all of the table. Of the others: finalizers and policies. */
const OWN_RULES = ['ConfigMap', 'Event', 'Job', 'Namespace', 'Pod', 'ReplicationController'];
const FOR_ALL = ['without options', 'in the background', 'in the foreground', 'without orphanDependents'];

interface Deletion {
  readonly name: string;
  readonly options?: object;
  readonly query?: string;
  /** A second deletion of an object that remains. */
  readonly again?: object;
}

const DELETIONS: readonly Deletion[] = [
  { name: 'without options' },
  { name: 'in the background', options: { propagationPolicy: 'Background' } },
  { name: 'in the foreground', options: { propagationPolicy: 'Foreground' } },
  { name: 'with orphans', options: { propagationPolicy: 'Orphan' } },
  { name: 'with orphanDependents', options: { orphanDependents: true } },
  { name: 'without orphanDependents', options: { orphanDependents: false } },
  { name: 'with orphanDependents in the query', query: 'orphanDependents=true' },
  { name: 'with a policy in the query', query: 'propagationPolicy=Foreground' },
  {
    name: 'with a body and a query',
    options: { gracePeriodSeconds: 7 },
    query: 'propagationPolicy=Orphan&gracePeriodSeconds=0&dryRun=All',
  },
  { name: 'with a grace period that is not a number', query: 'gracePeriodSeconds=soon' },
  { name: 'with an unknown boolean', query: 'orphanDependents=maybe' },
  { name: 'with an empty policy', query: 'propagationPolicy=' },
  { name: 'with an unknown option in the query', query: 'pretty=true&unknown=1' },
  { name: 'with an unknown option', options: { unknown: 1 } },
  { name: 'with an unknown dry run', options: { dryRun: ['Some'] } },
  { name: 'with two policies', options: { propagationPolicy: 'Orphan', orphanDependents: false } },
  { name: 'with an unknown policy', options: { propagationPolicy: 'Sometimes' } },
  { name: 'at once', options: { gracePeriodSeconds: 0 } },
  { name: 'with a grace period', options: { gracePeriodSeconds: 7 } },
  { name: 'with a negative grace period', options: { gracePeriodSeconds: -5 } },
  { name: 'as a dry run', options: { dryRun: ['All'] } },
  { name: 'as a dry run with orphans', options: { dryRun: ['All'], propagationPolicy: 'Orphan' } },
  { name: 'of another uid', options: { preconditions: { uid: '00000000-0000-0000-0000-000000000001' } } },
  { name: 'of another version', options: { preconditions: { resourceVersion: '1' } } },
  { name: 'twice', again: {} },
  { name: 'twice, in the end in the background', again: { propagationPolicy: 'Background' } },
  { name: 'twice, in the end with orphans', again: { propagationPolicy: 'Orphan' } },
  {
    name: 'with orphans, then in the foreground',
    options: { propagationPolicy: 'Orphan' },
    again: { propagationPolicy: 'Foreground' },
  },
  {
    name: 'in the foreground, then without options',
    options: { propagationPolicy: 'Foreground' },
    again: {},
  },
];

/** A difference in what a deletion answers or leaves. */
export interface DeletionFinding {
  readonly kind: string;
  readonly object: string;
  readonly finalizers: readonly string[];
  readonly deletion: string;
  readonly difference: string;
}

/** One deletion of the comparison. */
interface Case {
  readonly base: BaseObject;
  readonly finalizers: readonly string[];
  readonly deletion: Deletion;
  readonly collection: boolean;
}

/**
 * Returns the deletions of the objects: of those whose kind has rules of its own, each pair of object, finalizers, way, and
 * alone or by the collection; of the others, each kind's ways take turns with the finalizers. A rule depends on two of
 * these. The full product has all.
 */
function casesOf(bases: readonly BaseObject[]): readonly Case[] {
  const own = bases.filter(({ kind }) => OWN_RULES.includes(kind));
  const ways = DELETIONS.filter(({ name }) => FOR_ALL.includes(name));
  const others = bases
    .filter((base) => !own.includes(base))
    .flatMap((base, i) =>
      BEFORE.slice(0, 3).flatMap((finalizers, j) =>
        ways
          .filter((_, k) => TAKES_FULL_PRODUCT || (i + j + k) % OTHERS_ONE_OF === 0)
          .flatMap((deletion) =>
            (deletion.name === FOR_ALL[0] ? [false, true] : [false]).map((collection) => ({
              base,
              finalizers,
              deletion,
              collection,
            })),
          ),
      ),
    );
  // By their places: objects make long names.
  const chosen = combinations({
    base: own.map((_, i) => i),
    finalizers: BEFORE.map((_, i) => i),
    deletion: DELETIONS.map((_, i) => i),
    collection: [false, true],
  });
  return [
    ...chosen.flatMap(({ base: i, finalizers: j, deletion: k, collection }) => {
      const [base, finalizers, deletion] = [own[i], BEFORE[j], DELETIONS[k]];
      return base && finalizers && deletion ? [{ base, finalizers, deletion, collection }] : [];
    }),
    ...others,
  ];
}

/**
 * Deletes base objects, with and without finalizers, in all ways, alone and by their collection, on both servers.
 * Compares answers, warnings and what remains.
 */
export async function runDeletions(
  oracle: Oracle,
  ours: Oracle,
): Promise<{ readonly findings: readonly DeletionFinding[]; readonly count: number }> {
  const findings: DeletionFinding[] = [];
  const cases = casesOf(baseObjects());
  // Cases of one object are its name's: one after another.
  const byObject = [...Map.groupBy(cases, ({ base }) => base).values()];
  await inParallel(byObject, async (ofObject) => {
    for (const { base, finalizers, deletion, collection } of ofObject) {
      const observations = [oracle, ours].map((server) =>
        observe(server, base, finalizers, deletion, collection),
      );
      const [expected, actual] = await Promise.all(observations);
      const found = expected && actual ? compare(expected, actual) : 'no observation';
      if (found === null) continue;
      const name = collection ? `of the collection ${deletion.name}` : deletion.name;
      const { kind, metadata } = base;
      findings.push({ kind, object: metadata.name, finalizers, deletion: name, difference: found });
    }
  });
  return { findings, count: cases.length };
}

/** What one server answers to each request; `left`: the object after them. */
interface Observation {
  readonly answers: readonly Answer[];
  readonly left: Answer;
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly warning: string;
}

async function observe(
  server: Oracle,
  base: BaseObject,
  finalizers: readonly string[],
  deletion: Deletion,
  collection: boolean,
): Promise<Observation> {
  const path = pathOf(base);
  const own = `${path}/${encodeURIComponent(base.metadata.name)}`;
  const made = await server.send('POST', path, {
    ...base,
    metadata: { ...base.metadata, ...(finalizers.length > 0 ? { finalizers } : {}) },
  });
  if (made.status !== 201) throw new Error(`failed to create ${own}: ${JSON.stringify(made)}`);
  const answers: Answer[] = [];
  for (const options of deletion.again ? [deletion.options, deletion.again] : [deletion.options]) {
    const selector = collection
      ? `fieldSelector=${encodeURIComponent(`metadata.name=${base.metadata.name}`)}`
      : '';
    const query = [selector, deletion.query ?? ''].filter((part) => part !== '').join('&');
    const body =
      options === undefined
        ? undefined
        : JSON.stringify({ apiVersion: 'v1', kind: 'DeleteOptions', ...options });
    const headers = { accept: 'application/json', 'content-type': 'application/json' };
    const raw = await server.sendRaw('DELETE', `${collection ? path : own}?${query}`, headers, body);
    answers.push({ status: raw.status, body: decoded(raw.body), warning: raw.warning });
  }
  const left = { ...(await server.send('GET', own)), warning: '' };
  if (left.status === 200) await remove(server, base.kind, own);
  return { answers, left };
}

async function remove(server: Oracle, kind: string, own: string): Promise<void> {
  await server.send('PATCH', own, { metadata: { finalizers: null } }, 'application/merge-patch+json');
  const options = { gracePeriodSeconds: 0, propagationPolicy: 'Background' };
  const { body } = await server.send('DELETE', own, options);
  if (kind === 'Namespace') await server.send('PUT', `${own}/finalize`, { ...(body as object), spec: {} });
}

function compare(expected: Observation, actual: Observation): string | null {
  for (const [i, wanted] of [...expected.answers, expected.left].entries()) {
    const got = [...actual.answers, actual.left][i];
    if (!got) return `answer ${i + 1} is missing`;
    const which = i === expected.answers.length ? 'left' : `answer ${i + 1}`;
    if (wanted.warning !== got.warning)
      return `${which}: warning is ${JSON.stringify(wanted.warning)}, ours ${JSON.stringify(got.warning)}`;
    const found = difference(wanted, got);
    if (found !== null) return `${which}: ${found}`;
  }
  return null;
}

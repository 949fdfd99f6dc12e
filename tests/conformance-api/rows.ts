import { type BaseObject, DEFINITIONS, pathOf, variedObjects } from './objects.ts';
import type { ApiAnswer, ApiClient } from './oracle.ts';
import { type Variation, variationsOf } from './variations.ts';

/**
 * The ways in which a variation is sent. Those after `apply` need the stored object: `apply again` has the manager that
 * applied it, `apply over` and `apply by force` another manager.
 */
export const VERBS = ['create', 'apply', 'update', 'apply again', 'apply over', 'apply by force'] as const;
export type Verb = (typeof VERBS)[number];

/** One request of the comparison, by its names. */
export interface Row {
  readonly kind: string;
  /** The name of the object in objects.yaml. */
  readonly object: string;
  readonly verb: Verb;
  readonly variation: string;
}

/** Returns a text that names the row. */
export const rowKey = ({ kind, object, verb, variation }: Row): string =>
  [kind, object, verb, variation].join('\0');

/** Receives the answers of the servers to one row, in the order of the servers. */
export type Visit = (row: Row, answers: readonly ApiAnswer[]) => void;

export interface RowOptions {
  /** Limits the kinds. */
  readonly wanted?: (kind: string) => boolean;
  /** Limits the rows. */
  readonly selected?: (row: Row) => boolean;
}

const APPLY = 'application/apply-patch+yaml';
const IN_FLIGHT = 8;
/** A conflict is found for one value of a field as for the others: every so many variations are applied by another manager. */
const OTHER_MANAGER_EVERY = 4;

/**
 * Sends every variation of every object to all servers, with dryRun, so that requests are independent: as a creation
 * and as an apply of an object that does not exist, then as an update and as applies of the stored object. Returns the
 * objects that a server refused to store: their other rows are not sent.
 */
export async function runRows(
  servers: readonly ApiClient[],
  visit: Visit,
  { wanted = () => true, selected = () => true }: RowOptions = {},
): Promise<string[]> {
  const refused: string[] = [];
  for (const definition of DEFINITIONS) await Promise.all(servers.map((send) => define(send, definition)));
  for (const base of variedObjects()) {
    if (!wanted(base.kind)) continue;
    const variations = variationsOf(base);
    const run = (verb: Verb, stored: readonly BaseObject[], of: readonly Variation[]) =>
      inParallel(of, async (variation) => {
        const row = { kind: base.kind, object: base.metadata.name, verb, variation: variation.name };
        if (!selected(row)) return;
        const answers = servers.map((send, i) => ask(send, verb, base, stored[i] ?? base, variation));
        visit(row, await Promise.all(answers));
      });
    await run('create', [], variations);
    await run('apply', [], variations);
    const stored = await Promise.all(servers.map((send) => store(send, base)));
    const made = stored.filter((one) => typeof one !== 'string');
    if (made.length < stored.length) {
      refused.push(`${base.kind} ${base.metadata.name}: ${stored.find((one) => typeof one === 'string')}`);
    } else {
      await run('update', made, variations);
      await run('apply again', [], variations);
      await run('apply over', [], everyFourth(variations, 1));
      await run('apply by force', [], everyFourth(variations, 3));
    }
    await Promise.all(servers.map((send) => remove(send, base)));
  }
  return refused;
}

const everyFourth = (variations: readonly Variation[], from: number) =>
  variations.filter((_, index) => index % OTHER_MANAGER_EVERY === from);

function ask(
  send: ApiClient,
  verb: Verb,
  base: BaseObject,
  stored: BaseObject,
  variation: Variation,
): Promise<ApiAnswer> {
  const path = pathOf(base);
  const own = path + nameOf(base);
  const query = (manager: string) => `?dryRun=All&fieldManager=${manager}${variation.query ?? ''}`;
  switch (verb) {
    case 'create':
      return send('POST', path + query('tester'), variation.of(base));
    case 'update':
      return send('PUT', own + query('tester'), variation.of(stored));
    case 'apply':
    case 'apply again':
      return send('PATCH', own + query('tester'), variation.of(base), APPLY);
    case 'apply over':
      return send('PATCH', own + query('other'), variation.of(base), APPLY);
    case 'apply by force':
      return send('PATCH', `${own}${query('other')}&force=true`, variation.of(base), APPLY);
  }
}

/** Stores an object, by an apply, and returns it; the reason if the server refuses it. */
async function store(send: ApiClient, base: BaseObject): Promise<BaseObject | string> {
  const own = pathOf(base) + nameOf(base);
  let made = await send('PATCH', `${own}?fieldManager=tester`, base, APPLY);
  if (made.status >= 300) made = await send('POST', `${pathOf(base)}?fieldManager=tester`, base);
  if (made.status !== 201) return `${made.status} ${JSON.stringify(made.body)}`;
  // Read again: a controller in the server may write to it after the answer (the data of a token's Secret).
  for (let attempt = 0; ; attempt++) {
    const { body } = await send('GET', own);
    const object = body as BaseObject;
    if (attempt === MAX_READS || !isFilledLater(object)) return object;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const MAX_READS = 20;

/** Only the embedded server runs a controller that checks the types of admission policies. */
function isFilledLater({ kind, type, data, status }: BaseObject): boolean {
  if (kind === 'ValidatingAdmissionPolicy') {
    return (status as { observedGeneration?: number } | undefined)?.observedGeneration === undefined;
  }
  return type === 'kubernetes.io/service-account-token' && data === undefined;
}

async function remove(send: ApiClient, base: BaseObject): Promise<void> {
  const own = pathOf(base) + nameOf(base);
  if (base['metadata'].finalizers) {
    await send('PATCH', own, { metadata: { finalizers: null } }, 'application/merge-patch+json');
  }
  await send('DELETE', `${own}?gracePeriodSeconds=0`);
}

/** Creates a definition, and waits until its objects are served, also for applies. Throws Error after a minute. */
async function define(send: ApiClient, definition: (typeof DEFINITIONS)[number]): Promise<void> {
  const made = await send('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definition.body);
  if (made.status !== 201 && made.status !== 409) throw new Error(JSON.stringify(made.body));
  const probe = { ...definition.probe, metadata: { name: 'probe' } };
  const path = `${pathOf(definition.probe)}/probe?dryRun=All&fieldManager=probe`;
  for (let attempt = 0; attempt < 600; attempt++) {
    const { status } = await send('PATCH', path, probe, APPLY);
    if (status === 201) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`the objects of ${definition.body.metadata.name} are not served`);
}

const nameOf = ({ metadata }: BaseObject) => `/${encodeURIComponent(metadata.name)}`;

/** Works on several items at a time. */
export async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  await Promise.all(
    Array.from({ length: IN_FLIGHT }, async () => {
      for (const item of queue) await work(item);
    }),
  );
}

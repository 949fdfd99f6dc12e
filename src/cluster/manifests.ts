import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { apiVersionOf, type Kind } from '../apiserver/kind.ts';
import { KINDS } from '../apiserver/kinds.ts';
import { ApiError, type Client, hasReason, pathOf } from '../kube/client.ts';
import { trustPublicAuthorities } from '../kube/public-authorities.ts';
import type { KubeObject, Resource } from '../kube/types.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { closestName } from '../lib/closest-name.ts';
import { FairleadError, fileProblem, messageOf } from '../lib/errors.ts';

/** An object of a manifest, with its position in the file. */
export interface ManifestObject {
  readonly object: KubeObject & { readonly kind: string; readonly apiVersion: string };
  /** Null: not built in; a CustomResourceDefinition in the manifests or in the cluster may define it. */
  readonly kind: Kind | null;
  /**
   * Empty for cluster-scoped kinds; may be set for kinds of a CustomResourceDefinition, whose scope is not known yet.
   */
  readonly namespace: string;
  readonly name: string;
  /** "hello.yaml: document 2: Deployment hello" */
  readonly source: string;
}

/** The objects of manifests, and one error for each document that is not an object. */
export interface Manifests {
  readonly objects: readonly ManifestObject[];
  readonly problems: readonly FairleadError[];
}

/**
 * Reads manifests before any process is started: files, folders, "-" (standard input) and URLs. Throws FairleadError
 * "bad-manifest" for a file that cannot be read or is not YAML; a document without kind or name is a problem of the
 * result.
 */
export async function readManifests(paths: readonly string[]): Promise<Manifests> {
  const documents: Document[] = [];
  for (const file of paths.flatMap(manifestFiles)) {
    const name = file === '-' ? 'standard input' : file;
    documents.push(...parseDocuments(name, await readText(file)));
  }
  return readObjects(documents);
}

/** Reads manifests from text, or takes objects as they are; like `readManifests`. `name` is that of the source in messages. */
export function manifestsOf(source: string | readonly unknown[], name: string): Manifests {
  return readObjects(
    typeof source === 'string'
      ? parseDocuments(name, source)
      : source.map((value, i) => ({ where: `${name}: object ${i + 1}`, value })),
  );
}

/** A value of a manifest, with its position. */
interface Document {
  readonly where: string;
  readonly value: unknown;
}

function readObjects(documents: readonly Document[]): Manifests {
  const found = documents.map(({ where, value }) => readObject(where, value));
  return {
    objects: found.filter((one): one is ManifestObject => !(one instanceof FairleadError)),
    problems: found.filter((one) => one instanceof FairleadError),
  };
}

export const isUrl = (path: string): boolean => /^https?:\/\//.test(path);

const DOWNLOAD_MS = 30_000;

async function readText(file: string): Promise<string> {
  try {
    if (!isUrl(file)) return readFileSync(file === '-' ? 0 : file, 'utf8');
    trustPublicAuthorities();
    const answer = await fetch(file, { signal: AbortSignal.timeout(DOWNLOAD_MS) });
    if (answer.ok) return await answer.text();
    await answer.body?.cancel();
    throw refusal(file, `cannot read ${file}: the server answers ${answer.status} ${answer.statusText}`);
  } catch (error) {
    if (error instanceof FairleadError) throw error;
    // fetch gives the reason as the cause of its error.
    const problem = error instanceof Error && error.cause ? messageOf(error.cause) : fileProblem(error);
    throw refusal(file, `cannot read ${file}: ${problem}`);
  }
}

const refusal = (file: string, message: string, hint?: string) =>
  new FairleadError(message, {
    op: 'read manifest',
    code: 'bad-manifest',
    object: file,
    ...(hint === undefined ? {} : { hint }),
  });

/** Returns the documents of a file, and the items of lists, with their positions. Empty documents are left out. */
function parseDocuments(file: string, text: string): Document[] {
  const documents = parseAllDocuments(text);
  return (Array.isArray(documents) ? documents : []).flatMap((document, i) => {
    const [problem] = document.errors;
    if (problem) throw refusal(file, `${file}: ${problem.message}`);
    const value = document.toJS() as { kind?: string; items?: unknown } | null;
    const where = `${file}: document ${i + 1}`;
    if (value === null) return [];
    if (value.kind !== 'List' || !Array.isArray(value.items)) return [{ where, value }];
    return value.items.map((item: unknown, k) => ({ where: `${where}, item ${k + 1}`, value: item }));
  });
}

function readObject(where: string, value: unknown): ManifestObject | FairleadError {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return refusal(where, `${where}: not an object`, 'correct the document and run this again');
  const object = value as ManifestObject['object'];
  const name = object.metadata?.name;
  const missing = [
    ...(object.apiVersion ? [] : ['apiVersion']),
    ...(object.kind ? [] : ['kind']),
    ...(name ? [] : ['metadata.name']),
  ];
  if (missing.length > 0 || !name)
    return refusal(where, `${where}: missing ${missing.join(', ')}`, `add ${missing.join(', ')}`);
  const kind =
    KINDS.find((one) => one.kind === object.kind && apiVersionOf(one) === object.apiVersion) ?? null;
  return {
    object,
    kind,
    name,
    namespace: kind?.namespaced === false ? '' : (object.metadata?.namespace ?? 'default'),
    source: `${where}: ${object.kind} ${name}`,
  };
}

/**
 * Returns the file itself, or the manifests of a folder sorted by name, without subfolders (like `kubectl apply -f`).
 */
function manifestFiles(path: string): string[] {
  if (path === '-' || isUrl(path) || !statSync(path, { throwIfNoEntry: false })?.isDirectory()) return [path];
  const files = readdirSync(path, { withFileTypes: true })
    .filter((entry) => !entry.isDirectory() && /\.(ya?ml|json)$/.test(entry.name))
    .map((entry) => join(path, entry.name))
    .sort();
  if (files.length > 0) return files;
  throw new FairleadError(`no manifests in ${path}: no file ends in .yaml, .yml or .json`, {
    op: 'read manifest',
    code: 'bad-manifest',
    object: path,
  });
}

/** The delay before an object or a definition is retried. */
const RETRY_MS = 100;

/** The result of applying manifests. */
export interface AppliedManifests {
  readonly applied: readonly ManifestObject[];
  /** One error for each object that was not applied: "bad-manifest" for an unknown kind, otherwise "refused". */
  readonly problems: readonly FairleadError[];
}

/**
 * Creates or updates the objects by server-side apply, in the given order. An object that is refused does not stop the
 * others, and is retried after them, since it may depend on them: its namespace, or the definition of its kind. Until
 * `deadline` aborts, objects also wait for definitions of the manifests to be served, and for admission webhooks that
 * cannot be called yet.
 */
export async function applyManifests(
  client: Client,
  objects: readonly ManifestObject[],
  deadline: AbortSignal,
  fieldManager = 'fairlead-up',
): Promise<AppliedManifests> {
  const applied: ManifestObject[] = [];
  for (let left = objects; ; ) {
    const failed: { readonly entry: ManifestObject; readonly error: FairleadError }[] = [];
    for (const entry of left) {
      const error = await applyObject(client, entry, fieldManager);
      if (error === null) applied.push(entry);
      else failed.push({ entry, error });
    }
    const defined = definedKinds(applied);
    const mayHealItself = failed.some(
      ({ entry, error }) =>
        isWebhookUnreached(error.cause) ||
        (error.code === 'bad-manifest' && defined.has(kindKey(entry.object))),
    );
    const isStuck = failed.length === left.length && !mayHealItself;
    if (isStuck || deadline.aborted) return { applied, problems: failed.map(({ error }) => error) };
    if (mayHealItself) await pause(systemClock, RETRY_MS);
    left = failed.map(({ entry }) => entry);
  }
}

/** Applies an object. Returns the error that explains why it was not applied, or null. */
async function applyObject(
  client: Client,
  entry: ManifestObject,
  fieldManager: string,
): Promise<FairleadError | null> {
  const { object, namespace, name, source } = entry;
  let path = source;
  try {
    const resource = entry.kind ?? (await findResource(client, object));
    if (resource === null) return await unknownKind(client, entry);
    path = pathOf(resource, namespace, name);
    await client.patch({ ...resource }, name, 'apply', object, {
      namespace,
      fieldManager,
      fieldValidation: 'Strict',
      force: true,
    });
    return null;
  } catch (error) {
    return new FairleadError(`${source}: ${messageOf(error)}`, {
      op: 'apply manifest',
      code: 'refused',
      object: path,
      hint: 'correct the manifest and run this again',
      cause: error,
    });
  }
}

const kindKey = ({ apiVersion, kind }: ManifestObject['object']) => `${apiVersion} ${kind}`;

/** "GROUP/VERSION KIND" of every kind that a CustomResourceDefinition among the objects defines. */
function definedKinds(objects: readonly ManifestObject[]): ReadonlySet<string> {
  return new Set(
    objects.flatMap(({ object, kind }) => {
      if (kind?.kind !== 'CustomResourceDefinition') return [];
      const { spec } = object as {
        spec?: { group?: string; names?: { kind?: string }; versions?: { name?: string }[] };
      };
      return (spec?.versions ?? []).map(({ name }) => `${spec?.group}/${name} ${spec?.names?.kind}`);
    }),
  );
}

interface ServedResource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
}

/** Looks up a kind that is not built in on the server; null if it is not served. */
async function findResource(client: Client, object: ManifestObject['object']): Promise<Resource | null> {
  const [group = '', version = ''] = splitVersion(object.apiVersion);
  const served = await servedResources(client, object.apiVersion);
  const found = served.find(({ kind }) => kind === object.kind);
  return found
    ? { group, version, plural: found.name, kind: found.kind, namespaced: found.namespaced }
    : null;
}

/** Lists the resources of a group and version, without subresources; empty if it is not served. */
async function servedResources(client: Client, apiVersion: string): Promise<ServedResource[]> {
  const answer = await ignoreMissing(
    client.request('GET', apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`),
  );
  const { resources = [] } = (answer ?? {}) as { resources?: ServedResource[] };
  return resources.filter(({ name }) => !name.includes('/'));
}

async function ignoreMissing(answer: Promise<unknown>): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    // The server answers paths that it does not serve without a reason.
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

const splitVersion = (apiVersion: string): readonly string[] =>
  apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];

async function unknownKind(client: Client, { object, source }: ManifestObject): Promise<FairleadError> {
  return new FairleadError(`${source}: unknown kind ${object.kind} in ${object.apiVersion}`, {
    op: 'read manifest',
    code: 'bad-manifest',
    hint: await kindFix(client, object),
  });
}

/** Describes what to change about an unknown kind, by what the server serves. */
async function kindFix(client: Client, { kind, apiVersion }: ManifestObject['object']): Promise<string> {
  const builtIn = KINDS.filter((one) => one.kind === kind).map(apiVersionOf);
  if (builtIn.length > 0) return `use apiVersion: ${builtIn.join(', or ')}`;
  const [group = ''] = splitVersion(apiVersion);
  const answer = group === '' ? null : await ignoreMissing(client.request('GET', `/apis/${group}`));
  const { versions = [] } = (answer ?? {}) as { versions?: { groupVersion: string }[] };
  for (const { groupVersion } of versions) {
    if ((await servedResources(client, groupVersion)).some((one) => one.kind === kind))
      return `use apiVersion: ${groupVersion}`;
  }
  const kinds = [...new Set((await servedResources(client, apiVersion)).map((one) => one.kind))];
  const close = closestName(kind, kinds);
  if (close !== null) return `use kind: ${close}`;
  // Groups of CustomResourceDefinitions have a domain name.
  if (group.includes('.') && !group.endsWith('.k8s.io'))
    return `add the CustomResourceDefinition that defines ${kind} in ${apiVersion} to the manifests, or apply it first`;
  return kinds.length > 0
    ? `use a kind of ${apiVersion}: ${kinds.sort().join(', ')}`
    : `correct apiVersion: ${apiVersion} is not served; see "kubectl api-versions"`;
}

/** Reports whether a webhook with failurePolicy Fail could not be called: its pods may still be starting. */
function isWebhookUnreached(error: unknown): boolean {
  return hasReason(error, 'InternalError') && messageOf(error).includes('failed calling webhook');
}

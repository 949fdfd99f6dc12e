import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { apiVersionOf, type Kind } from '../apiserver/kind.ts';
import { KINDS } from '../apiserver/kinds.ts';
import { type Client, hasReason, pathOf } from '../kube/client.ts';
import type { KubeObject, Resource } from '../kube/types.ts';
import { pause, systemClock } from '../lib/clock.ts';
import { FairleadError, fileProblem, messageOf } from '../lib/errors.ts';

/** An object of a manifest, with its position in the file. */
export interface ManifestObject {
  readonly object: KubeObject & { readonly kind: string; readonly apiVersion: string };
  /** Null: a CustomResourceDefinition in the manifests or in the cluster defines it. */
  readonly kind: Kind | null;
  /**
   * Empty for cluster-scoped kinds; may be set for kinds of a CustomResourceDefinition, whose scope is not known yet.
   */
  readonly namespace: string;
  readonly name: string;
  /** "hello.yaml: Deployment hello" */
  readonly source: string;
}

/**
 * Reads manifests before any process is started: files, folders, "-" (standard input) and URLs. Throws FairleadError
 * "bad-manifest" for an unreadable file and an object without kind or name.
 */
export async function readManifests(paths: readonly string[]): Promise<ManifestObject[]> {
  const objects: ManifestObject[] = [];
  for (const file of paths.flatMap(manifestFiles)) objects.push(...parseManifest(file, await readText(file)));
  return objects;
}

export const isUrl = (path: string): boolean => /^https?:\/\//.test(path);

const DOWNLOAD_MS = 30_000;

async function readText(file: string): Promise<string> {
  try {
    if (!isUrl(file)) return readFileSync(file === '-' ? 0 : file, 'utf8');
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

const refusal = (file: string, message: string) =>
  new FairleadError(message, { op: 'read manifest', code: 'bad-manifest', object: file });

function parseManifest(file: string, text: string): ManifestObject[] {
  const documents = parseAllDocuments(text);
  const values = (Array.isArray(documents) ? documents : []).flatMap((document) => {
    const [problem] = document.errors;
    if (problem) throw refusal(file, `${file}: ${problem.message}`);
    const value = document.toJS() as { kind?: string; items?: unknown[] } | null;
    if (value === null) return [];
    return value.kind === 'List' ? (value.items ?? []) : [value];
  });
  return values.map((value, i): ManifestObject => {
    const object = value as ManifestObject['object'];
    const where = `${file}: document ${i + 1}`;
    if (!object.kind || !object.apiVersion) throw refusal(file, `${where}: missing kind or apiVersion`);
    const kind =
      KINDS.find((one) => one.kind === object.kind && apiVersionOf(one) === object.apiVersion) ?? null;
    // Custom kinds are in a group with a domain name.
    if (!kind && !/^[^/]+\.[^/]+\/./.test(object.apiVersion))
      throw refusal(file, `${where}: unknown kind ${object.kind} in ${object.apiVersion}`);
    const name = object.metadata?.name;
    if (!name) throw refusal(file, `${where}: missing metadata.name`);
    return {
      object,
      kind,
      name,
      namespace: kind?.namespaced === false ? '' : (object.metadata?.namespace ?? 'default'),
      source: `${file}: ${object.kind} ${name}`,
    };
  });
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

/** Rejects objects of kinds that neither Kubernetes nor a CustomResourceDefinition of the manifests defines. */
export function refuseUndefinedKinds(objects: readonly ManifestObject[]): void {
  const defined = definedKinds(objects);
  const unknown = objects.find(({ object, kind }) => !kind && !defined.has(kindKey(object)));
  if (unknown) throw unknownKind(unknown);
}

/** The delay before an object or a definition is retried. */
const RETRY_MS = 100;

/**
 * Creates or updates the objects by server-side apply, in the given order. Objects whose admission webhook cannot be
 * called yet are retried after the others, until `deadline` aborts: the webhook may be among them. Throws FairleadError
 * "refused" for an object that the server refuses, and "bad-manifest" for an unknown kind.
 */
export async function applyManifests(
  client: Client,
  objects: readonly ManifestObject[],
  deadline: AbortSignal,
): Promise<void> {
  const defined = definedKinds(objects);
  for (let left = objects; left.length > 0; ) {
    const kept: { readonly entry: ManifestObject; readonly error: FairleadError }[] = [];
    for (const entry of left) {
      const { object, namespace, name, source } = entry;
      const resource = entry.kind ?? (await findResource(client, entry, defined, deadline));
      try {
        await client.patch({ ...resource }, name, 'apply', object, {
          namespace,
          fieldManager: 'fairlead-up',
          fieldValidation: 'Strict',
          force: true,
        });
      } catch (error) {
        const failure = new FairleadError(`${source}: ${messageOf(error)}`, {
          op: 'apply manifest',
          code: 'refused',
          object: pathOf(resource, namespace, name),
          hint: 'correct the manifest and run this again',
          cause: error,
        });
        if (!isWebhookUnreached(error)) throw failure;
        kept.push({ entry, error: failure });
      }
    }
    if (kept[0] && deadline.aborted) throw kept[0].error;
    left = kept.map(({ entry }) => entry);
    if (left.length > 0) await pause(systemClock, RETRY_MS);
  }
}

const kindKey = ({ apiVersion, kind }: ManifestObject['object']) => `${apiVersion} ${kind}`;

/** "GROUP/VERSION KIND" of every kind that a CustomResourceDefinition of the manifests defines. */
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

/** Looks up a kind of a CustomResourceDefinition on the server; waits for a kind that the manifests define. */
async function findResource(
  client: Client,
  entry: ManifestObject,
  defined: ReadonlySet<string>,
  deadline: AbortSignal,
): Promise<Resource> {
  const [group = '', version = ''] = entry.object.apiVersion.split('/');
  for (;;) {
    const answer = client.request('GET', `/apis/${group}/${version}`).catch((error: unknown) => {
      if (hasReason(error, 'NotFound')) return { resources: [] };
      throw error;
    });
    const { resources } = (await answer) as {
      resources: { name: string; kind: string; namespaced: boolean }[];
    };
    const found = resources.find(({ name, kind }) => kind === entry.object.kind && !name.includes('/'));
    if (found) return { group, version, plural: found.name, kind: found.kind, namespaced: found.namespaced };
    if (!defined.has(kindKey(entry.object)) || deadline.aborted) throw unknownKind(entry);
    await pause(systemClock, RETRY_MS);
  }
}

function unknownKind({ object, source }: ManifestObject): FairleadError {
  return new FairleadError(`${source}: unknown kind ${object.kind} in ${object.apiVersion}`, {
    op: 'read manifest',
    code: 'bad-manifest',
    hint: 'add the CustomResourceDefinition of the kind, or apply it first',
  });
}

/** Reports whether a webhook with failurePolicy Fail could not be called: its pods may still be starting. */
function isWebhookUnreached(error: unknown): boolean {
  return hasReason(error, 'InternalError') && error.message.includes('failed calling webhook');
}

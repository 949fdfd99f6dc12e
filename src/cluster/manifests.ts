import { readFileSync } from 'node:fs';
import { parseAllDocuments } from 'yaml';
import { apiVersionOf, type Kind } from '../apiserver/kind.ts';
import { KINDS } from '../apiserver/kinds.ts';
import { type Client, pathOf } from '../kube/client.ts';
import type { KubeObject } from '../kube/types.ts';
import { FairleadError, fileProblem, messageOf } from '../lib/errors.ts';

/** An object of a manifest, with its place in the file. */
export interface ManifestObject {
  readonly object: KubeObject & { readonly kind: string; readonly apiVersion: string };
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  /** "hello.yaml: Deployment hello" */
  readonly source: string;
}

/** Reads manifests, before anything is started. Throws FairleadError for a file that cannot be read and a kind that is not served. */
export function readManifests(files: readonly string[]): ManifestObject[] {
  return files.flatMap((file) => {
    const refuse = (message: string) =>
      new FairleadError(message, { op: 'read manifest', code: 'bad-manifest', object: file });
    let text: string;
    try {
      text = readFileSync(file === '-' ? 0 : file, 'utf8');
    } catch (error) {
      throw refuse(`cannot read ${file}: ${fileProblem(error)}`);
    }
    const documents = parseAllDocuments(text);
    const values = (Array.isArray(documents) ? documents : []).flatMap((document) => {
      const [problem] = document.errors;
      if (problem) throw refuse(`${file}: ${problem.message}`);
      const value = document.toJS() as { kind?: string; items?: unknown[] } | null;
      if (value === null) return [];
      return value.kind === 'List' ? (value.items ?? []) : [value];
    });
    return values.map((value, i): ManifestObject => {
      const object = value as ManifestObject['object'];
      const where = `${file}: document ${i + 1}`;
      if (!object.kind || !object.apiVersion) throw refuse(`${where}: missing kind or apiVersion`);
      const kind = KINDS.find((one) => one.kind === object.kind && apiVersionOf(one) === object.apiVersion);
      if (!kind) throw refuse(`${where}: unknown kind ${object.kind} in ${object.apiVersion}`);
      const name = object.metadata?.name;
      if (!name) throw refuse(`${where}: missing metadata.name`);
      return {
        object,
        kind,
        name,
        namespace: kind.namespaced ? (object.metadata?.namespace ?? 'default') : '',
        source: `${file}: ${object.kind} ${name}`,
      };
    });
  });
}

/** Creates or updates the objects by server-side apply, in the order given. */
export async function applyManifests(client: Client, objects: readonly ManifestObject[]): Promise<void> {
  for (const { object, kind, namespace, name, source } of objects) {
    const resource = { ...kind };
    try {
      await client.patch(resource, name, 'apply', object, {
        namespace,
        fieldManager: 'fairlead-up',
        fieldValidation: 'Strict',
        force: true,
      });
    } catch (error) {
      throw new FairleadError(`${source}: ${messageOf(error)}`, {
        op: 'apply manifest',
        code: 'refused',
        object: pathOf(resource, namespace, name),
        hint: 'correct the manifest and run this again',
        cause: error,
      });
    }
  }
}

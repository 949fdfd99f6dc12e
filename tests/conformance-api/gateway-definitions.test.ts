import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { startOurServer } from './tester.ts';

const folder = process.env['KUBEBUILDER_ASSETS'] ?? '';
const PLURALS: Readonly<Record<string, string>> = {
  CustomResourceDefinition: 'customresourcedefinitions',
  ValidatingAdmissionPolicy: 'validatingadmissionpolicies',
  ValidatingAdmissionPolicyBinding: 'validatingadmissionpolicybindings',
};

interface Document {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
}

for (const file of [
  'gateway-api-standard.yaml',
  'gateway-api-experimental.yaml',
  'clusternetworkpolicies.yaml',
]) {
  const path = join(folder, file);
  const skip = folder !== '' && existsSync(path) ? false : `KUBEBUILDER_ASSETS names no folder with ${file}`;
  test(`the API server takes all of ${file}`, { skip }, async (t) => {
    const server = await startOurServer();
    t.after(() => server.stop());
    const documents = parseAllDocuments(readFileSync(path, 'utf8'))
      .map((document) => document.toJS() as Document | null)
      .filter((document) => document !== null);
    assert.ok(documents.length > 0);
    // The first one once more: the admission policy of the file judges it now.
    for (const document of [...documents, ...documents.slice(0, 1)]) {
      const { apiVersion, kind, metadata } = document;
      const url = `/apis/${apiVersion}/${PLURALS[kind]}/${metadata.name}?fieldManager=test&force=true`;
      const type = 'application/apply-patch+yaml';
      const { status, body } = await server.send('PATCH', url, document, type);
      const { message } = body as { readonly message?: string };
      assert.ok(status === 201 || status === 200, `${kind} ${metadata.name}: ${message}`);
    }
  });
}

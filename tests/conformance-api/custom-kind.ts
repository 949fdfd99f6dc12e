import { strict as assert } from 'node:assert';
import type { ApiAnswer, Oracle } from './oracle.ts';

export interface CustomKind {
  /** Lower case, without the "s" of the plural: "map3". */
  readonly singular: string;
  readonly kind: string;
  /** The schema of the whole object. */
  readonly schema: object;
  readonly subresources?: object;
}

/** Creates the definition of a cluster-scoped kind of example.com/v1. */
export async function defineKind(
  server: Oracle,
  { singular, kind, schema, subresources }: CustomKind,
): Promise<void> {
  const plural = `${singular}s`;
  const made = await server.send('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.example.com` },
    spec: {
      group: 'example.com',
      scope: 'Cluster',
      names: { plural, singular, kind, listKind: `${kind}List` },
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          ...(subresources ? { subresources } : {}),
          schema: { openAPIV3Schema: schema },
        },
      ],
    },
  });
  assert.equal(made.status, 201, JSON.stringify(made.body));
}

/** Repeats a request until the kind is served, a moment after its definition was created. */
export async function sendServed(server: Oracle, ...request: Parameters<Oracle['send']>): Promise<ApiAnswer> {
  for (;;) {
    const answer = await server.send(...request);
    const { details } = answer.body as { details?: { name?: string } };
    // A missing object has a name, a path that is not served yet has none.
    if (answer.status !== 404 || details?.name !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/**
 * Returns the words of an error for a comparison: of several problems, kube-apiserver lists the first ones of a random order,
 * and it names one undeclared field.
 */
export const wordsOfError = (message: string | undefined): string[] | 'undeclared' | undefined =>
  /field not declared in schema/.test(message ?? '') ? 'undeclared' : message?.split(/[\s,[\]]+/).sort();

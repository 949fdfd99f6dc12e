import { difference } from './compare.ts';
import { type ApiAnswer, type ApiClient, CONNECTION_CLOSED } from './oracle.ts';
import { SEQUENCES, type Sequence, type Step } from './sequences.ts';

const PLACES: Readonly<Record<Sequence['kind'], readonly [apiVersion: string, path: string]>> = {
  ConfigMap: ['v1', '/api/v1/namespaces/default/configmaps'],
  Pod: ['v1', '/api/v1/namespaces/default/pods'],
  Service: ['v1', '/api/v1/namespaces/default/services'],
  Deployment: ['apps/v1', '/apis/apps/v1/namespaces/default/deployments'],
};

/** A difference in the answer to one step of a sequence. */
export interface SequenceFinding {
  readonly sequence: string;
  readonly step: number;
  readonly difference: string;
}

/** Runs every sequence on both servers and compares objects and owners after each step. */
export async function runSequences(oracle: ApiClient, ours: ApiClient): Promise<SequenceFinding[]> {
  const findings: SequenceFinding[] = [];
  for (const [index, sequence] of SEQUENCES.entries()) {
    const name = `sequence-${index}`;
    for (const [i, step] of sequence.steps.entries()) {
      const expected = await run(oracle, sequence.kind, name, step);
      const actual = await run(ours, sequence.kind, name, step);
      if (expected.status === CONNECTION_CLOSED) break;
      const found = difference(expected, actual) ?? owners(expected, actual);
      if (found === null) continue;
      findings.push({ sequence: sequence.name, step: i + 1, difference: found });
      break;
    }
    for (const send of [oracle, ours]) {
      const path = `${PLACES[sequence.kind][1]}/${name}`;
      await send('PATCH', path, { metadata: { finalizers: null } }, 'application/merge-patch+json');
      await send('DELETE', `${path}?gracePeriodSeconds=0`);
    }
  }
  return findings;
}

async function run(send: ApiClient, kind: Sequence['kind'], name: string, step: Step): Promise<ApiAnswer> {
  const [apiVersion, collection] = PLACES[kind];
  const body = step.body as { metadata?: object };
  const object = { apiVersion, kind, ...body, metadata: { name, namespace: 'default', ...body.metadata } };
  const path = `${collection}/${name}${step.status ? '/status' : ''}?fieldManager=${step.manager}`;
  switch (step.verb) {
    case 'apply':
      return send('PATCH', `${path}&force=${step.force ?? false}`, object, 'application/apply-patch+yaml');
    case 'patch':
      return send('PATCH', path, step.body, 'application/merge-patch+json');
    case 'json':
      return send('PATCH', path, step.body, 'application/json-patch+json');
    case 'update': {
      const made = await send('POST', `${collection}?fieldManager=${step.manager}`, object);
      return made.status === 409 ? send('PUT', path, object) : made;
    }
  }
}

interface Entry {
  manager: string;
  operation: string;
  subresource?: string;
  fieldsV1: unknown;
}

function owners(expected: ApiAnswer, actual: ApiAnswer): string | null {
  const read = (answer: ApiAnswer) => {
    const metadata = (answer.body as { metadata?: { managedFields?: Entry[] } } | null)?.metadata;
    return (metadata?.managedFields ?? [])
      .map(
        ({ manager, operation, subresource = '', fieldsV1 }) =>
          `${manager} ${operation} ${subresource}: ${JSON.stringify(fieldsV1)}`,
      )
      .sort();
  };
  const [wanted, got] = [read(expected), read(actual)];
  return JSON.stringify(wanted) === JSON.stringify(got)
    ? null
    : `owners:\n  ${wanted.join('\n  ')}\nours:\n  ${got.join('\n  ')}`;
}

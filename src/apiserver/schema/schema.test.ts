import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { canonicalQuantity } from '../../kube/quantity-text.ts';
import { KINDS } from '../kinds.ts';
import { createApiTypes } from './packages.ts';
import { createSchemaService } from './service.ts';

const schema = createSchemaService({ kinds: KINDS });

interface Sample {
  readonly name: string;
  readonly json: { readonly apiVersion: string; readonly kind: string };
  readonly protobuf: string;
}
const samples = JSON.parse(
  readFileSync(join(import.meta.dirname, 'testing/samples.json'), 'utf8'),
) as readonly Sample[];

test('Protobuf of the Go client decodes to the JSON that it would have sent, and back to the same bytes', async (t) => {
  for (const { name, json, protobuf } of samples) {
    const bytes = Buffer.from(protobuf, 'base64');
    await t.test(`${name} decodes`, () => assert.deepEqual(schema.decodeProtobuf(bytes), json));
    await t.test(`${name} encodes`, () =>
      assert.equal(schema.encodeProtobuf(json).toString('hex'), bytes.toString('hex')),
    );
  }
});

test('a list in pieces has the same bytes as the list as a whole, also when its items were encoded before', async (t) => {
  const kinds = Map.groupBy(samples, ({ json }) => `${json.apiVersion} ${json.kind}`);
  for (const [name, members] of kinds) {
    const { apiVersion, kind } = members[0]?.json ?? { apiVersion: '', kind: '' };
    if (!schema.hasProtobuf(apiVersion, `${kind}List`)) continue;
    const items = members.map(({ json }) => json);
    await t.test(`${name}List`, () => {
      for (const metadata of [{ resourceVersion: '7' }, { resourceVersion: '8', remainingItemCount: 3 }]) {
        const list = { apiVersion, kind: `${kind}List`, metadata };
        const pieces = Buffer.concat([...schema.encodeProtobufList(list, items)]);
        assert.equal(pieces.toString('hex'), schema.encodeProtobuf({ ...list, items }).toString('hex'));
      }
    });
  }
});

const official = officialSamples();
test('all objects of k8s.io/api/testdata decode and encode', {
  skip: official === null ? "Go's module cache does not have k8s.io/api" : false,
}, () => {
  const types = createApiTypes();
  let compared = 0;
  for (const file of official ? readdirSync(official).filter((name) => name.endsWith('.pb')) : []) {
    const path = join(official ?? '', file);
    const json = JSON.parse(readFileSync(path.replace(/\.pb$/, '.json'), 'utf8'));
    if (!types.kind(json.apiVersion, json.kind)) continue;
    const bytes = readFileSync(path);
    assert.deepEqual(schema.decodeProtobuf(bytes), json, file);
    assert.equal(schema.encodeProtobuf(json).toString('hex'), bytes.toString('hex'), file);
    assert.equal(schema.typeError(json.apiVersion, json.kind, json), null, file);
    assert.deepEqual(schema.prune(json.apiVersion, json.kind, json, null), [], file);
    compared++;
  }
  assert.ok(compared > 50, `${compared} objects compared`);
});

function officialSamples(): string | null {
  try {
    const module = 'k8s.io/api';
    const folder = join(import.meta.dirname, '../../../tools/schema');
    const options = { cwd: folder, env: { ...process.env, GOFLAGS: '-mod=mod', GOPROXY: 'off' } };
    const path = execFileSync('go', ['list', '-m', '-f', '{{.Dir}}', module], { ...options, stdio: 'pipe' });
    const samples = join(path.toString().trim(), 'testdata/HEAD');
    return existsSync(samples) ? samples : null;
  } catch {
    // Without Go, or without the module in its cache, there is nothing to compare with.
    return null;
  }
}

test('malformed Protobuf is refused with a description', async (t) => {
  const pod = Buffer.from(samples.find((one) => one.name === 'workloads Pod')?.protobuf ?? '', 'base64');
  const rows: [behaviour: string, bytes: Buffer, expected: RegExp][] = [
    ['not Protobuf of Kubernetes', Buffer.from('{"kind":"Pod"}'), /does not begin with the prefix/],
    ['no data after the prefix', pod.subarray(0, 4), /no kind "" is registered/],
    ['cut off', pod.subarray(0, pod.length - 40), /ends within a value/],
    [
      'an unknown kind',
      Buffer.concat([pod.subarray(0, 4), Buffer.from('0a0a0a027631120458787878', 'hex')]),
      /no kind "Xxxx" is registered for version "v1"/,
    ],
    [
      'a wrong wire type',
      Buffer.concat([
        pod.subarray(0, 4),
        Buffer.from('0a090a02763112035 06f64'.replace(' ', ''), 'hex'),
        Buffer.from('12020801', 'hex'),
      ]),
      /wrong wireType = 0 for field Pod.metadata/,
    ],
  ];
  for (const [behaviour, bytes, expected] of rows) {
    await t.test(behaviour, () => assert.throws(() => schema.decodeProtobuf(bytes), expected));
  }
  await t.test('no byte may be changed into a crash', () => {
    for (let i = 4; i < pod.length; i++) {
      for (const value of [0, 0x7f, 0xff]) {
        const changed = Buffer.from(pod);
        changed[i] = value;
        try {
          schema.decodeProtobuf(changed);
        } catch (error) {
          assert.ok(error instanceof Error && !(error instanceof TypeError), String(error));
        }
      }
    }
  });
});

test('strict decoding names unknown and duplicate fields', async (t) => {
  const container = (json: string) => `{"spec":{"template":{"spec":{"containers":[{"name":"a"},${json}]}}}}`;
  const rows: [behaviour: string, kind: string, json: string, expected: string[]][] = [
    ['nothing wrong', 'apps/v1 Deployment', '{"spec":{"replicas":1}}', []],
    ['unknown at the top', 'apps/v1 Deployment', '{"specs":{"a":{}}}', ['unknown field "specs"']],
    ['unknown inside', 'apps/v1 Deployment', '{"spec":{"replica":1}}', ['unknown field "spec.replica"']],
    [
      'unknown in a list',
      'apps/v1 Deployment',
      container('{"name":"b","prots":[]}'),
      ['unknown field "spec.template.spec.containers[1].prots"'],
    ],
    ['case matters', 'apps/v1 Deployment', '{"Spec":{}}', ['unknown field "Spec"']],
    [
      'an embedded struct has its fields inline',
      'v1 Pod',
      '{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}',
      [],
    ],
    ['keys of maps are arbitrary', 'v1 ConfigMap', '{"data":{"anything":"goes"}}', []],
    ['free-form values are not checked', 'apps/v1 ControllerRevision', '{"data":{"a":1,"a":2}}', []],
    [
      'duplicate',
      'apps/v1 Deployment',
      '{"spec":{"replicas":1,"replicas":2}}',
      ['duplicate field "spec.replicas"'],
    ],
    [
      'duplicate in a list',
      'apps/v1 Deployment',
      container('{"name":"b","name":"c"}'),
      ['duplicate field "spec.template.spec.containers[1].name"'],
    ],
    [
      'duplicate key of a map',
      'v1 ConfigMap',
      '{"data":{"a":"1","\\u0061":"2"}}',
      ['duplicate field "data.a"'],
    ],
    ['kinds without a description pass', 'example.com/v1 Own', '{"a":1,"a":2}', []],
  ];
  for (const [behaviour, kind, json, expected] of rows) {
    await t.test(behaviour, () => {
      const [apiVersion = '', name = ''] = kind.split(' ');
      assert.deepEqual(schema.prune(apiVersion, name, JSON.parse(json), json), expected);
    });
  }
});

test('pruning removes unknown fields and normalizes the rest', () => {
  const pod = {
    metadata: { name: 'x', creationTimestamp: null, labels: {} },
    spec: { nope: 1, containers: [{ name: 'a', resources: { limits: { cpu: 0.5, memory: '1024Mi' } } }] },
  };
  schema.prune('v1', 'Pod', pod, null);
  assert.deepEqual(pod, {
    metadata: { name: 'x', labels: {} },
    spec: { containers: [{ name: 'a', resources: { limits: { cpu: '500m', memory: '1Gi' } } }] },
  });
});

test('null items are those that Go decodes them to', () => {
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    spec: {
      securityContext: { supplementalGroups: [null] },
      containers: [null, { name: 'a', args: [null] }],
    },
  };
  schema.prune('v1', 'Pod', pod, null);
  schema.complete(pod);
  const { containers, securityContext } = pod.spec as { containers: unknown[]; securityContext: unknown };
  assert.deepEqual(securityContext, { supplementalGroups: [0] });
  assert.equal(containers.length, 2);
  assert.equal((containers[0] as { terminationMessagePolicy: string }).terminationMessagePolicy, 'File');
  assert.deepEqual((containers[1] as { args: unknown }).args, ['']);
});

test('values of the wrong type are refused in Go’s words', async (t) => {
  const rows: [object: object, expected: string | null][] = [
    [{ spec: { replicas: 3, template: { spec: { containers: null } } } }, null],
    [
      { spec: { replicas: '3' } },
      'json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32',
    ],
    [
      { spec: { replicas: 1.5 } },
      'json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32',
    ],
    [
      { spec: { template: { spec: { containers: {} } } } },
      'json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container',
    ],
    [
      { metadata: { labels: { a: 1 } } },
      'json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string',
    ],
    [
      { spec: { template: { spec: { containers: [{ env: [{ name: 'A', value: true }] }] } } } },
      'json: cannot unmarshal bool into Go struct field EnvVar.spec.template.spec.containers.env.value of type string',
    ],
    [
      { spec: { template: { spec: { containers: [{ resources: { limits: { cpu: 'lots' } } }] } } } },
      "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ],
    [
      { metadata: { creationTimestamp: 'soon' } },
      'parsing time "\\"soon\\"" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as a time',
    ],
    [
      { spec: { strategy: { rollingUpdate: { maxSurge: true } } } },
      'json: cannot unmarshal bool into Go value of type int32',
    ],
    [
      { spec: { strategy: { rollingUpdate: { maxSurge: 2 ** 31 } } } },
      'json: cannot unmarshal number 2147483648 into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32',
    ],
  ];
  for (const [object, expected] of rows) {
    await t.test(expected ?? 'nothing wrong', () =>
      assert.equal(schema.typeError('apps/v1', 'Deployment', object), expected),
    );
  }
  await t.test('base64', () => {
    const error = (text: string) => schema.typeError('v1', 'Secret', { data: { a: text } });
    assert.equal(error('c2VjcmV0'), null);
    assert.equal(error('c2Vj*mV0'), 'illegal base64 data at input byte 4');
    assert.equal(error('abc'), 'illegal base64 data at input byte 0');
  });
});

test('quantities become canonical', async (t) => {
  const rows: [given: string | number, canonical: string | null][] = [
    ['0', '0'],
    ['1', '1'],
    ['1.0', '1'],
    [0.5, '500m'],
    ['0.5', '500m'],
    ['1500m', '1500m'],
    ['2000m', '2'],
    ['1000', '1k'],
    ['100k', '100k'],
    ['1024Ki', '1Mi'],
    ['1.5Gi', '1536Mi'],
    ['1000Mi', '1000Mi'],
    ['1e3', '1e3'],
    ['12e4', '120e3'],
    ['-250m', '-250m'],
    ['0.1n', '1n'],
    ['', null],
    ['.', null],
    ['1 Gi', null],
    ['lots', null],
  ];
  for (const [given, canonical] of rows) {
    await t.test(`${given} is ${canonical}`, () => assert.equal(canonicalQuantity(given), canonical));
  }
});

test('patches merge fields by their schema', async (t) => {
  const rows: [kind: string, path: string, expected: object][] = [
    ['v1 Service', 'spec.ports', { mergeKey: 'port', listType: 'map', listKeys: ['port', 'protocol'] }],
    ['v1 Service', 'spec.selector', { kind: 'map', atomic: true }],
    ['v1 Pod', 'spec.containers', { mergeKey: 'name', patchStrategies: ['merge'], listType: 'map' }],
    [
      'v1 Pod',
      'spec.containers.*.ports',
      { mergeKey: 'containerPort', listKeys: ['containerPort', 'protocol'] },
    ],
    ['v1 Pod', 'spec.volumes', { mergeKey: 'name', patchStrategies: ['merge', 'retainKeys'] }],
    ['v1 Pod', 'spec.volumes.*.emptyDir', { kind: 'object', atomic: false }],
    ['v1 Pod', 'spec.containers.*.command', { kind: 'list', listType: 'atomic', mergeKey: null }],
    ['v1 Pod', 'status.hostIPs', { listType: 'atomic' }],
    ['v1 Pod', 'metadata.finalizers', { patchStrategies: ['merge'], listType: 'set', mergeKey: null }],
    ['v1 Pod', 'metadata.labels', { kind: 'map', atomic: false }],
    ['apps/v1 Deployment', 'spec.selector', { kind: 'object', atomic: true }],
    ['apps/v1 Deployment', 'spec.strategy', { patchStrategies: ['retainKeys'] }],
    ['apps/v1 ControllerRevision', 'data', { kind: 'any' }],
  ];
  for (const [kind, path, expected] of rows) {
    await t.test(`${kind} ${path}`, () => {
      const [apiVersion = '', name = ''] = kind.split(' ');
      let at = schema.patchSchema(apiVersion, name);
      for (const step of path.split('.')) at = (step === '*' ? at?.items : at?.field(step)) ?? null;
      assert.ok(at, 'the field is known');
      for (const [property, value] of Object.entries(expected)) {
        assert.deepEqual(at[property as keyof typeof at], value, property);
      }
    });
  }
  await t.test('no schema for kinds without a description', () =>
    assert.equal(schema.patchSchema('example.com/v1', 'Own'), null),
  );
});

test('OpenAPI documents', async (t) => {
  const index = (await schema.openapiIndex()) as { paths: Record<string, { serverRelativeURL: string }> };
  await t.test('every group-version is listed with the hash of its document', async () => {
    for (const [path, { serverRelativeURL }] of Object.entries(index.paths)) {
      const document = await schema.openapiDocument(path);
      assert.equal(serverRelativeURL, `/openapi/v3/${path}?hash=${document?.hash}`);
    }
    assert.ok(index.paths['api/v1'] && index.paths['apis/apps/v1']);
  });
  await t.test('an unknown one is not there', async () =>
    assert.equal(await schema.openapiDocument('apis/none/v1'), null),
  );
  await t.test('every reference leads somewhere, and every kind is there to be patched', async () => {
    for (const path of Object.keys(index.paths)) {
      const text = (await schema.openapiDocument(path))?.json.toString() ?? '';
      const document = JSON.parse(text) as {
        components: { schemas: Record<string, Record<string, unknown>> };
        paths: Record<string, { patch?: Record<string, unknown> }>;
      };
      for (const [, name] of text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
        assert.ok(document.components.schemas[name ?? ''], `${path}: ${name}`);
      }
      for (const kind of KINDS) {
        if (path !== (kind.group === '' ? `api/${kind.version}` : `apis/${kind.group}/${kind.version}`))
          continue;
        const item = `/${path}/${kind.namespaced ? 'namespaces/{namespace}/' : ''}${kind.plural}/{name}`;
        assert.deepEqual(document.paths[item]?.patch?.['x-kubernetes-group-version-kind'], {
          group: kind.group,
          version: kind.version,
          kind: kind.kind,
        });
      }
    }
  });
});

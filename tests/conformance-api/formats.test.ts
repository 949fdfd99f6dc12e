import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { type Oracle, type RawAnswer, startOracle } from './oracle.ts';
import { startOurServer } from './tester.ts';

const assets = process.env['KUBEBUILDER_ASSETS'];
const skip = assets ? false : 'KUBEBUILDER_ASSETS does not name a folder with kube-apiserver and etcd';

const PROTOBUF = 'application/vnd.kubernetes.protobuf';
const META = 'v=v1;g=meta.k8s.io';
const DISCOVERY = 'g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList';
const ACCEPTED = [
  'application/json',
  'application/yaml',
  PROTOBUF,
  `${PROTOBUF},application/json`,
  '*/*',
  'text/html',
  `application/json;as=Table;${META}`,
  `application/yaml;as=Table;${META}`,
  `application/json;as=PartialObjectMetadata;${META}`,
  `${PROTOBUF};as=PartialObjectMetadata;${META}`,
  `application/json;${DISCOVERY}`,
  `application/yaml;${DISCOVERY}`,
  `${PROTOBUF};${DISCOVERY},application/json`,
  'application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json',
];

interface Row {
  readonly name: string;
  readonly method?: string;
  readonly path: string;
  readonly body?: object;
  /** Both servers return exactly the same bytes. */
  readonly same?: boolean;
  /** False: upstream has a table for it, this server does not. */
  readonly table?: boolean;
}

const MAPS = '/api/v1/namespaces/default/configmaps';
const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';
const configMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'formats' } };
const deployment = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'formats' },
  spec: {
    replicas: 0,
    selector: { matchLabels: { a: 'b' } },
    template: { metadata: { labels: { a: 'b' } }, spec: { containers: [{ name: 'a', image: 'b' }] } },
  },
};

const ROWS: readonly Row[] = [
  { name: 'the core versions', path: '/api' },
  { name: 'the groups', path: '/apis' },
  { name: 'a group', path: '/apis/batch' },
  { name: 'the core resources', path: '/api/v1' },
  { name: 'the resources of a group', path: '/apis/batch/v1' },
  { name: 'the version', path: '/version' },
  { name: 'an unknown core version', path: '/api/v2', same: true },
  { name: 'an unknown version of a group', path: '/apis/batch/v9', same: true },
  { name: 'an unknown group', path: '/apis/nope' },
  { name: 'an unknown path', path: '/nope' },
  { name: 'an unknown resource', path: '/api/v1/nope', same: true },
  { name: 'an object that is not there', path: `${MAPS}/nope`, same: true },
  { name: 'an object', path: `${MAPS}/formats` },
  { name: 'a scale', table: false, path: `${DEPLOYMENTS}/formats/scale` },
  { name: 'an object that is there already', method: 'POST', path: MAPS, body: configMap, same: true },
  { name: 'a write to discovery', method: 'PUT', path: '/api', body: {} },
  {
    name: 'a review',
    method: 'POST',
    path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    body: { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' },
  },
];

async function prepare({ send }: Oracle): Promise<void> {
  assert.equal((await send('POST', MAPS, configMap)).status, 201);
  assert.equal((await send('POST', DEPLOYMENTS, deployment)).status, 201);
}

const ask = ({ sendRaw }: Oracle, { method = 'GET', path, body }: Row, accept: string) =>
  sendRaw(
    method,
    path,
    { accept, 'content-type': 'application/json' },
    body === undefined ? undefined : JSON.stringify(body),
  );

const outline = ({ status, contentType }: RawAnswer) => `${status} ${contentType.replaceAll(' ', '')}`;

test('every endpoint answers in the formats of kube-apiserver', { skip }, async (t) => {
  const oracle = await startOracle(assets ?? '');
  t.after(() => oracle.stop());
  const ours = await startOurServer();
  t.after(() => ours.stop());
  await prepare(oracle);
  await prepare(ours);
  for (const row of ROWS) {
    await t.test(row.name, async () => {
      for (const accept of ACCEPTED) {
        if (row.table === false && accept.includes('as=Table')) continue;
        const [expected, actual] = await Promise.all([ask(oracle, row, accept), ask(ours, row, accept)]);
        assert.equal(outline(actual), outline(expected), accept);
        // Upstream indents JSON for clients whose Accept header has parameters.
        const isJson = expected.contentType.startsWith('application/json');
        const content = ({ body }: RawAnswer) =>
          isJson ? JSON.parse(body.toString()) : body.toString('latin1');
        if (row.same) assert.deepEqual(content(actual), content(expected), accept);
      }
    });
  }
});

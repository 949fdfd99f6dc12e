import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { readConfiguration } from '../agent/configuration.ts';
import { commandAccessObjects } from './command-access-objects.ts';
import { deploymentFiles } from './deployment-files.ts';
import { installationObjects } from './installation-objects.ts';
import { INSTALLATIONS, type Installation } from './installation-shared.ts';
import { version } from './version.ts';

const deploy = join(import.meta.dirname, '..', '..', 'deploy');
const kubectl = join(process.env['KUBEBUILDER_ASSETS'] ?? '', 'kubectl');
/** The program helm, for instance of `go install helm.sh/helm/v3/cmd/helm@v3.16.4`. */
const helm = process.env['HELM'] ?? '';

interface Rule {
  readonly resources?: string[];
  readonly resourceNames?: string[];
  readonly nonResourceURLs?: string[];
  readonly verbs: string[];
}

interface Role {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly name: string };
  readonly data?: Record<string, string>;
}

const INSTALLATION = {
  namespace: 'kube-system',
  image: 'fairlead:1',
  mode: 'nftables',
  server: 'https://192.0.2.1:6443',
  servers: ['https://192.0.2.2:6443'],
  clusterCidr: '10.244.0.0/16',
  dnsAddress: '10.96.0.10',
  dnsReplicas: 2,
  clusterDomain: 'cluster.local',
  uplink: 'eth0',
} as const;

const objects = (parts: Installation, pool: readonly string[] = []) =>
  installationObjects({ ...INSTALLATION, parts, pool }) as unknown as Role[];

test('the files below deploy/ equal the output of the generator (node tools/deployment-files.mjs)', () => {
  for (const [path, text] of deploymentFiles())
    assert.equal(readFileSync(join(deploy, path), 'utf8'), text, path);
  const generated = ['helm', 'kustomize'].flatMap((folder) =>
    readdirSync(join(deploy, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => relative(deploy, join(parentPath, name))),
  );
  assert.deepEqual(generated.toSorted(), [...deploymentFiles().keys()].toSorted());
});

for (const parts of INSTALLATIONS) {
  test(`${parts}: the agent accepts its configuration, and its nodes have only read access`, () => {
    const all = objects(parts);
    const text = all.find(({ kind }) => kind === 'ConfigMap')?.data?.['agent.yaml'] ?? '';
    const configuration = readConfiguration(parse(text), { NODE_NAME: 'node-1' });
    assert.deepEqual(
      [configuration.server, configuration.servers],
      ['https://192.0.2.1:6443', ['https://192.0.2.2:6443']],
    );
    assert.deepEqual(
      [configuration.proxy !== null, configuration.dns !== null, configuration.network !== null],
      [parts !== 'policy', parts === 'proxy-dns' || parts === 'all', parts === 'all'],
    );
    assert.deepEqual(
      all.flatMap(({ roleRef }) => roleRef?.name ?? []),
      parts === 'all' || parts === 'policy'
        ? ['system:node-proxier', 'fairlead-policy']
        : parts === 'proxy-dns'
          ? ['system:node-proxier', 'fairlead-dns']
          : ['system:node-proxier'],
    );
  });
}

test('proxy-dns: pods answer while agents are replaced, unless there are to be none; the agents know their Service', () => {
  const rendered = (dnsReplicas: number) => {
    const all = installationObjects({
      ...INSTALLATION,
      parts: 'proxy-dns',
      dnsReplicas,
      pool: [],
    }) as unknown as Role[];
    const text = all.find(({ kind }) => kind === 'ConfigMap')?.data?.['agent.yaml'] ?? '';
    return {
      pods: all.filter(({ kind }) => kind === 'Deployment').map(({ metadata }) => metadata.name),
      service: readConfiguration(parse(text), { NODE_NAME: 'node-1' }).dns?.fallbackService,
    };
  };
  assert.deepEqual(rendered(2), { pods: ['fairlead-dns'], service: 'kube-system/fairlead-dns' });
  assert.deepEqual(rendered(0), { pods: [], service: null });
});

const READING = ['get', 'list', 'watch'];

test('commands: the agents get reviews only; the accounts only paths of agents; users one token and objects to read', () => {
  const all = commandAccessObjects('kube-system') as unknown as (Role & {
    readonly subjects?: readonly { readonly name: string }[];
  })[];
  const given = all.flatMap(({ roleRef, subjects = [] }) =>
    subjects.map(({ name }) => `${name}: ${roleRef?.name}`),
  );
  assert.deepEqual(given.sort(), [
    'fairlead-operator: fairlead-operator',
    'fairlead-viewer: fairlead-viewer',
    'fairlead: system:auth-delegator',
  ]);
  const rulesOf = (kind: string, name: string) =>
    all.find((one) => one.kind === kind && one.metadata.name === name)?.rules ?? [];
  assert.deepEqual(
    rulesOf('ClusterRole', 'fairlead-viewer').map(({ resources, nonResourceURLs, verbs }) => ({
      resources,
      isOfAgents: nonResourceURLs?.every((path) => path.startsWith('/fairlead/v1/')),
      changesMode: nonResourceURLs?.includes('/fairlead/v1/mode'),
      verbs,
    })),
    [{ resources: undefined, isOfAgents: true, changesMode: false, verbs: ['get'] }],
  );
  assert.deepEqual(
    rulesOf('ClusterRole', 'fairlead-operator').map(({ verbs }) => verbs),
    [['get'], ['update']],
  );
  for (const name of ['fairlead-viewer', 'fairlead-operator'])
    assert.deepEqual(
      rulesOf('Role', name).map(({ resources, resourceNames, verbs }) => [resources, resourceNames, verbs]),
      [
        [['serviceaccounts/token'], [name], ['create']],
        [['pods/proxy'], undefined, ['get', 'create']],
      ],
    );
  assert.deepEqual(
    rulesOf('ClusterRole', 'fairlead-objects').flatMap(({ verbs }) =>
      verbs.filter((verb) => !READING.includes(verb)),
    ),
    [],
  );
});

test('with a pool only the address controller may write Services; nodes get Leases of one namespace', () => {
  const all = objects('proxy', ['192.0.2.10-192.0.2.20']);
  const writers = all.filter(({ rules }) =>
    rules?.some(
      ({ resources, verbs }) =>
        resources?.some((one) => one.startsWith('services')) &&
        verbs.some((verb) => !['list', 'watch'].includes(verb)),
    ),
  );
  assert.deepEqual(
    writers.map(({ kind, metadata }) => [kind, metadata.name]),
    [['ClusterRole', 'fairlead-addresses']],
  );
  assert.deepEqual(
    all.filter(({ kind }) => kind === 'Role').map(({ metadata }) => metadata),
    [
      ['fairlead', 'kube-system'],
      ['fairlead-addresses', 'kube-system'],
      ['fairlead-addresses', 'default'],
    ].map(([name, namespace]) => ({ name, namespace, labels: { 'app.kubernetes.io/name': name } })),
  );
});

test('each placeholder of the chart has a value, and each template is YAML', () => {
  const files = deploymentFiles();
  const values = parse(files.get('helm/fairlead/values.yaml') ?? '') as Record<string, string>;
  for (const parts of INSTALLATIONS) {
    const template = files.get(`helm/fairlead/templates/${parts}.yaml`) ?? '';
    const used = [...template.matchAll(/\.Values\.([A-Za-z]+)/g)].map(([, name = '']) => name);
    assert.deepEqual(
      used.filter((name) => !(name in values)),
      [],
    );
    const branch = /\{\{- else \}\}\n([\s\S]*?)\{\{- end \}\}/.exec(template)?.[1] ?? '';
    const documents = parseAllDocuments(
      branch
        .replace(/\{\{ *required "[^"]*" [^}]*\}\}/g, 'https://x:1')
        .replace('{{ int .Values.dnsReplicas }}', '2'),
    );
    assert.deepEqual(
      documents.flatMap((document) => document.errors),
      [],
    );
    assert.equal(documents.length, objects(parts).length);
  }
});

describe('kubectl kustomize', {
  skip: existsSync(kubectl) ? false : 'KUBEBUILDER_ASSETS does not name a folder with kubectl',
}, () => {
  for (const parts of INSTALLATIONS) {
    test(`${parts}: the overlay has the objects of fairlead manifests`, () => {
      const out = execFileSync(kubectl, ['kustomize', join(deploy, 'kustomize', parts)]).toString();
      const rendered = parseAllDocuments(out).map((document) => document.toJS() as Role);
      const expected = installationObjects({
        ...INSTALLATION,
        image: `fairlead:${version}`,
        server: 'https://API-SERVER:6443',
        servers: [],
        parts,
        clusterCidr: '',
        pool: [],
      }) as unknown as Role[];
      const component = parts === 'proxy' ? {} : { 'app.kubernetes.io/component': parts };
      const labelled = expected.map(({ metadata, ...rest }) => ({
        ...rest,
        metadata: { ...metadata, labels: { ...metadata.labels, ...component } },
      }));
      assert.deepEqual(byName(rendered), byName(labelled));
    });
  }
});

describe('helm', { skip: helm === '' ? 'HELM does not name the program' : false }, () => {
  const chart = join(deploy, 'helm', 'fairlead');
  // The API server and all values that `objects` has.
  const values = [
    'apiServer=https://192.0.2.1:6443',
    'apiServers={https://192.0.2.2:6443}',
    'image=fairlead:1',
  ].flatMap((one) => ['--set', one]);

  test('lint finds nothing', () => {
    assert.match(
      execFileSync(helm, ['lint', '--strict', chart, ...values]).toString(),
      /1 chart\(s\) linted, 0 chart\(s\) failed/,
    );
  });

  for (const parts of INSTALLATIONS) {
    test(`${parts}: the chart has the objects of fairlead manifests`, () => {
      const flags = ['--namespace', 'kube-system', '--kube-version', '1.36.0', '--set', `parts=${parts}`];
      const out = execFileSync(helm, ['template', 'fairlead', chart, ...flags, ...values]).toString();
      const rendered = parseAllDocuments(out).map((document) => document.toJS() as Role);
      const expected = installationObjects({ ...INSTALLATION, parts, clusterCidr: '', pool: [] });
      assert.deepEqual(byName(rendered), byName(expected as unknown as Role[]));
    });
  }
});

/** Sorts objects, and reads the configuration, in which the chart quotes values. */
const byName = (all: readonly Role[]) =>
  all
    .map((one) => ({ ...one, ...(one.data ? { data: mapValues(one.data, parse) } : {}) }))
    .toSorted((a, b) => `${a.kind}/${a.metadata.name}`.localeCompare(`${b.kind}/${b.metadata.name}`));

const mapValues = (map: Readonly<Record<string, string>>, read: (text: string) => unknown) =>
  Object.fromEntries(Object.entries(map).map(([key, value]) => [key, read(value)]));

test('systemd restarts the agent whenever it ends, and never gives up', () => {
  const unit = readFileSync(join(deploy, 'systemd', 'fairlead-agent.service'), 'utf8');
  const sections = unit.split(/^\[(?=[A-Z])/m);
  const settingsOf = (name: string) => sections.find((one) => one.startsWith(`${name}]`)) ?? '';
  assert.match(settingsOf('Service'), /^Restart=always$/m);
  assert.match(settingsOf('Service'), /^RestartSec=1$/m);
  assert.match(settingsOf('Unit'), /^StartLimitIntervalSec=0$/m);
});

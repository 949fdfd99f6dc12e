import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv } from 'ajv';
import { parse, parseAllDocuments } from 'yaml';
import { readConfiguration } from '../agent/configuration.ts';
import { commandAccessObjects } from './command-access-objects.ts';
import { AGENT_CAPABILITIES } from './container-rights.ts';
import { deploymentFiles } from './deployment-files.ts';
import { installationObjects } from './installation-objects.ts';
import { INSTALLATIONS, type Installation, type InstallationOptions } from './installation-shared.ts';
import { byName, INSTALLATION, type Role, type Workload, WRONG_VALUES } from './testing/deployment.ts';
import { version } from './version.ts';

const deploy = join(import.meta.dirname, '..', '..', 'deploy');
const kubectl = join(process.env['KUBEBUILDER_ASSETS'] ?? '', 'kubectl');

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
          ? ['system:node-proxier', 'fairlead-names', 'fairlead-dns']
          : ['system:node-proxier'],
    );
  });
}

/** Returns the addresses other than loopback at which agents listen, the annotation of their pods, and the named ports. */
function openPorts(options: Partial<InstallationOptions>) {
  const all = installationObjects({ ...INSTALLATION, parts: 'proxy', pool: [], ...options });
  const text = (all.find(({ kind }) => kind === 'ConfigMap') as unknown as Role).data?.['agent.yaml'] ?? '';
  const { commandsBindAddress, metricsBindAddress } = readConfiguration(parse(text), { NODE_NAME: 'node-1' });
  const { template } = (all.find(({ kind }) => kind === 'DaemonSet') as unknown as Workload).spec;
  return {
    commandsBindAddress,
    metricsBindAddress,
    annotations: template.metadata.annotations,
    ports: template.spec.containers[0]?.ports,
    accounts: all.filter(({ kind }) => kind === 'ServiceAccount').length,
  };
}

const OPENED: readonly (readonly [
  what: string,
  options: Partial<InstallationOptions>,
  ports: ReturnType<typeof openPorts>,
])[] = [
  [
    'by default, no port for commands and none for metrics is open to other machines',
    {},
    {
      commandsBindAddress: null,
      metricsBindAddress: '127.0.0.1:10249',
      annotations: undefined,
      ports: undefined,
      accounts: 1,
    },
  ],
  [
    'commands open their port and add their rights',
    { commands: true },
    {
      commandsBindAddress: '0.0.0.0:10268',
      metricsBindAddress: '127.0.0.1:10249',
      annotations: { 'fairlead.dev/commands-port': '10268' },
      ports: undefined,
      accounts: 3,
    },
  ],
  [
    'agents that only enforce policies serve no commands, and their metrics beside those of kube-proxy',
    { parts: 'policy', commands: true, metricsAddress: '[::]' },
    {
      commandsBindAddress: null,
      metricsBindAddress: '[::]:10267',
      annotations: undefined,
      ports: [{ name: 'metrics', containerPort: 10267 }],
      accounts: 1,
    },
  ],
];
for (const [what, options, ports] of OPENED) test(what, () => assert.deepEqual(openPorts(options), ports));

test('docs/operating.md has the capabilities of --unprivileged, with the reason for each', () => {
  const text = readFileSync(join(deploy, '..', 'docs', 'operating.md'), 'utf8');
  const rows = [...text.matchAll(/^\| ([A-Z_]+) \| [^|]* \| ([^|]*) \|$/gm)];
  assert.deepEqual(
    rows.map(([, name, reason]) => ({ name, reason })),
    AGENT_CAPABILITIES.map(({ name, reason }) => ({ name, reason })),
  );
});

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
    all.filter(({ kind }) => kind === 'Role').map(({ metadata }) => [metadata.name, metadata.namespace]),
    [
      ['fairlead', 'fairlead-leases'],
      ['fairlead-earlier-leases', 'kube-system'],
      ['fairlead-addresses', 'fairlead-leases'],
      ['fairlead-addresses', 'kube-system'],
      ['fairlead-addresses', 'default'],
    ],
  );
  const changed = all.flatMap(({ kind, metadata, rules = [] }) =>
    rules.flatMap(({ resources, resourceNames = [], verbs }) =>
      metadata.namespace === 'kube-system' && kind === 'Role' && resources?.includes('leases')
        ? verbs.filter((verb) => !READING.includes(verb)).map((verb) => `${verb} ${resourceNames.join()}`)
        : [],
    ),
  );
  assert.deepEqual(changed, ['update load-balancer-pools', 'create ']);
});

describe('values.schema.json', () => {
  const files = deploymentFiles();
  const values = parse(files.get('helm/fairlead/values.yaml') ?? '') as Record<string, object>;
  const isValues = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(files.get('helm/fairlead/values.schema.json') ?? '') as object,
  );

  test('the default values are valid, and each placeholder of the templates has a value', () => {
    assert.equal(isValues(values), true, JSON.stringify(isValues.errors));
    const templates = [...files].filter(([path]) => path.startsWith('helm/fairlead/templates/'));
    const used = templates.flatMap(([, text]) =>
      [...text.matchAll(/\.Values((?:\.[A-Za-z]+)+)/g)].map(([, path = '']) => path.slice(1).split('.')),
    );
    assert.deepEqual(
      used.filter(
        (path) =>
          path.reduce<unknown>((one, name) => (one as Record<string, unknown>)?.[name], values) === undefined,
      ),
      [],
    );
  });
  for (const [what, changed] of WRONG_VALUES) {
    test(`${what} is refused`, () => assert.equal(isValues({ ...values, ...changed }), false));
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

test('systemd restarts the agent whenever it ends, and never gives up', () => {
  const unit = readFileSync(join(deploy, 'systemd', 'fairlead-agent.service'), 'utf8');
  const sections = unit.split(/^\[(?=[A-Z])/m);
  const settingsOf = (name: string) => sections.find((one) => one.startsWith(`${name}]`)) ?? '';
  assert.match(settingsOf('Service'), /^Restart=always$/m);
  assert.match(settingsOf('Service'), /^RestartSec=1$/m);
  assert.match(settingsOf('Unit'), /^StartLimitIntervalSec=0$/m);
});

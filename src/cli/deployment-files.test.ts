import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv } from 'ajv';
import { parse, parseAllDocuments } from 'yaml';
import { readConfiguration } from '../agent/configuration.ts';
import { commandAccessObjects } from './command-access-objects.ts';
import { AGENT_CAPABILITIES } from './container-rights.ts';
import { deploymentFiles } from './deployment-files.ts';
import { installationObjects } from './installation-objects.ts';
import { INSTALLATIONS, type Installation, type InstallationOptions } from './installation-shared.ts';
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
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
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
  uplink: '',
  commands: false,
  privileged: true,
  metricsAddress: '',
  monitors: [],
} as const;

/** Mistakes in the values of the chart, as fields of its values file. */
const WRONG_VALUES: readonly (readonly [what: string, values: Readonly<Record<string, unknown>>])[] = [
  ['an unknown part', { parts: 'proxy_dns' }],
  ['an unknown mode', { mode: 'nftable' }],
  ['an API server without https', { apiServer: 'http://192.0.2.1:6443' }],
  ['an API server without a scheme', { apiServer: '192.0.2.1:6443' }],
  ['a misspelt value', { apiserver: 'https://192.0.2.1:6443' }],
  ['a misspelt value of a workload', { agent: { toleration: [] } }],
  ['a toleration with a wrong effect', { agent: { tolerations: [{ key: 'a', effect: 'NoSchedul' }] } }],
  ['a misspelt field of a toleration', { dns: { tolerations: [{ keey: 'a' }] } }],
  ['a text for a number', { dnsReplicas: 'two' }],
  ['the label of the selector', { agent: { podLabels: { 'app.kubernetes.io/name': 'other' } } }],
  ['an annotation of our own', { agent: { podAnnotations: { 'fairlead.dev/commands-port': '1' } } }],
  ['a variable without a name', { agent: { extraEnv: [{ value: 'a' }] } }],
  ['an argument that is not a text', { dns: { extraArgs: [4] } }],
  ['a pull secret without a name', { imagePullSecrets: ['registry'] }],
  ['an IPv6 address without brackets', { metricsAddress: '::' }],
  ['a metrics address with a port', { metricsAddress: '0.0.0.0:9' }],
];

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

describe('helm', { skip: helm === '' ? 'HELM does not name the program' : false }, () => {
  const chart = join(deploy, 'helm', 'fairlead');
  // The API server and all values that `objects` has.
  const VALUES = [
    'apiServer=https://192.0.2.1:6443',
    'apiServers={https://192.0.2.2:6443}',
    'image=fairlead:1',
  ];
  const set = (...pairs: readonly string[]) => pairs.flatMap((one) => ['--set', one]);
  const values = set(...VALUES);

  test('lint finds nothing', () => {
    assert.match(
      execFileSync(helm, ['lint', '--strict', chart, ...values]).toString(),
      /1 chart\(s\) linted, 0 chart\(s\) failed/,
    );
  });

  const template = (...flags: readonly string[]): Role[] => {
    const out = execFileSync(
      helm,
      ['template', 'fairlead', chart, '--namespace', 'kube-system', '--kube-version', '1.36.0', ...flags],
      { stdio: ['ignore', 'pipe', 'pipe'] },
    ).toString();
    return parseAllDocuments(out)
      .map((document) => document.toJS() as Role | null)
      .filter((one) => one !== null);
  };
  const POOLS = ['192.0.2.10-192.0.2.20', '192.0.2.32/28'];

  for (const parts of INSTALLATIONS) {
    const rows: readonly (readonly [
      what: string,
      flags: readonly string[],
      options: Partial<InstallationOptions>,
    ])[] = [
      ['default values', [], {}],
      ['a pool', set(`pool={${POOLS.join(',')}}`), { pool: POOLS }],
      ['a pool as a text', set(`pool=${POOLS[0]}`), { pool: POOLS.slice(0, 1) }],
      ['networks of pods', set('clusterCIDRs={10.244.0.0/16}'), { clusterCidr: '10.244.0.0/16' }],
      ['no pods for DNS', set('dnsReplicas=0'), { dnsReplicas: 0 }],
      [
        'a mode, a domain, a DNS address and an uplink',
        set('mode=ebpf', 'clusterDomain=corp.example', 'dnsAddress=10.0.0.10', 'uplink=ens3'),
        { mode: 'ebpf', clusterDomain: 'corp.example', dnsAddress: '10.0.0.10', uplink: 'ens3' },
      ],
      ['capabilities in place of privileged', set('privileged=false'), { privileged: false }],
      ['commands of other machines', set('commands=true'), { commands: true }],
      [
        'metrics and both monitors',
        set('metricsAddress=0.0.0.0', 'podMonitor=true', 'serviceMonitor=true'),
        { metricsAddress: '0.0.0.0', monitors: ['pod', 'service'] },
      ],
    ];
    for (const [what, flags, options] of rows) {
      test(`${parts}, ${what}: the chart has the objects of fairlead manifests`, () => {
        const rendered = template(...set(`parts=${parts}`), ...values, ...flags);
        const expected = installationObjects({
          ...INSTALLATION,
          clusterCidr: '',
          pool: [],
          ...options,
          parts,
        });
        assert.deepEqual(byName(rendered), byName(expected as unknown as Role[]));
      });
    }
  }

  test('monitors get the labels by which a Prometheus selects them', () => {
    const all = template(
      ...values,
      ...set('metricsAddress=0.0.0.0', 'podMonitor=true', 'monitorLabels.release=prometheus', 'labels.a=b'),
    );
    const monitor = all.find(({ kind }) => kind === 'PodMonitor');
    assert.deepEqual(monitor?.metadata.labels, {
      'app.kubernetes.io/name': 'fairlead',
      release: 'prometheus',
      a: 'b',
    });
  });

  test('a monitor without a metrics address is refused', () => {
    assert.throws(
      () => template(...values, ...set('podMonitor=true')),
      /podMonitor, serviceMonitor: need metricsAddress/,
    );
  });

  test('the usual values reach the workloads, and labels and annotations every object', () => {
    const all = template(
      ...values,
      ...set('parts=policy', `pool=${POOLS[0]}`, 'labels.team=net', 'annotations.note=a'),
      ...set('imagePullPolicy=Always', 'imagePullSecrets[0].name=registry'),
      ...set('agent.tolerations=null', 'agent.podLabels.tier=node', 'agent.podAnnotations.scrape=yes'),
      ...set('agent.updateStrategy.type=OnDelete', 'agent.updateStrategy.rollingUpdate=null'),
      ...set(
        'addresses.nodeSelector.zone=a',
        'addresses.priorityClassName=low',
        'addresses.resources.limits.cpu=1',
      ),
    );
    for (const { kind, metadata } of all as (Role & { metadata: { annotations?: object } })[]) {
      assert.equal(metadata.labels?.['team'], 'net', `${kind}/${metadata.name}`);
      assert.deepEqual(metadata.annotations, { note: 'a' }, `${kind}/${metadata.name}`);
    }
    const specOf = (kind: string, name: string) =>
      (all as unknown as Workload[]).find((one) => one.kind === kind && one.metadata.name === name)?.spec;
    const agent = specOf('DaemonSet', 'fairlead');
    assert.deepEqual(agent?.updateStrategy, { type: 'OnDelete' });
    assert.deepEqual(agent?.template.metadata, {
      labels: { 'app.kubernetes.io/name': 'fairlead', tier: 'node' },
      annotations: { scrape: 'yes' },
    });
    assert.equal(agent?.template.spec['tolerations'], undefined);
    for (const one of [agent, specOf('Deployment', 'fairlead-addresses')]) {
      assert.deepEqual(one?.template.spec['imagePullSecrets'], [{ name: 'registry' }]);
      assert.equal(one?.template.spec.containers[0]?.imagePullPolicy, 'Always');
    }
    const addresses = specOf('Deployment', 'fairlead-addresses')?.template.spec;
    assert.deepEqual(addresses?.['nodeSelector'], { zone: 'a' });
    assert.equal(addresses?.['priorityClassName'], 'low');
    assert.deepEqual(addresses?.containers[0]?.resources, {
      requests: { cpu: '10m', memory: '100Mi' },
      limits: { cpu: 1 },
    });
  });

  test('further arguments and variables come after those of the workload', () => {
    const all = template(
      ...values,
      ...set(
        'parts=proxy-dns',
        'agent.extraArgs={--beside}',
        'dns.extraEnv[0].name=TZ',
        'dns.extraEnv[0].value=UTC',
      ),
    ) as unknown as Workload[];
    const containerOf = (kind: string) =>
      all.find((one) => one.kind === kind)?.spec.template.spec.containers[0];
    assert.deepEqual(containerOf('DaemonSet')?.args, [
      'agent',
      '--config',
      '/etc/fairlead/agent.yaml',
      '--beside',
    ]);
    assert.deepEqual(
      containerOf('Deployment')?.env?.map(({ name }) => name),
      ['POD_IPS', 'TZ'],
    );
  });

  test('a value with quotes stays one value', () => {
    const file = join(mkdtempSync(join(tmpdir(), 'flt-chart-')), 'values.yaml');
    try {
      writeFileSync(file, JSON.stringify({ agent: { podLabels: { a: 'b"\nc: d' } }, image: 'a"b:1' }));
      const all = template(...values, '--values', file, ...set('parts=proxy')) as unknown as Workload[];
      const pod = all.find(({ kind }) => kind === 'DaemonSet')?.spec.template;
      assert.equal(pod?.metadata.labels?.['a'], 'b"\nc: d');
    } finally {
      rmSync(dirname(file), { recursive: true });
    }
  });

  for (const [what, changed] of WRONG_VALUES) {
    test(`${what} is refused`, () => {
      const flags = Object.entries(changed).flatMap(([name, value]) => [
        '--set-json',
        `${name}=${JSON.stringify(value)}`,
      ]);
      const others = VALUES.filter((one) => !((one.split('=')[0] ?? '') in changed));
      assert.throws(
        () => template(...set(...others), ...flags),
        /values don't meet the specifications of the schema/,
      );
    });
  }
  test('without an API server, and with an unknown part where the schema is skipped, nothing is rendered', () => {
    assert.throws(() => template(), /apiServer: https:\/\/HOST:PORT of the API server/);
    assert.throws(
      () => template(...values, ...set('parts=foo'), '--skip-schema-validation'),
      /parts: must be one of proxy, proxy-dns, all, policy, not "foo"/,
    );
  });
});

interface Workload {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly updateStrategy?: object;
    readonly template: {
      readonly metadata: {
        readonly labels?: Readonly<Record<string, string>>;
        readonly annotations?: Readonly<Record<string, string>>;
      };
      readonly spec: Readonly<Record<string, unknown>> & {
        readonly containers: readonly {
          readonly imagePullPolicy?: string;
          readonly resources?: object;
          readonly ports?: readonly object[];
          readonly args?: readonly string[];
          readonly env?: readonly { readonly name: string }[];
        }[];
      };
    };
  };
}

/** Sorts objects, and reads the configuration, in which the chart quotes values. */
const byName = (all: readonly Role[]) =>
  all
    .map((one) => ({ ...one, ...(one.data ? { data: mapValues(one.data, parse) } : {}) }))
    .toSorted((a, b) => identity(a).localeCompare(identity(b)));

const identity = ({ kind, metadata }: Pick<Role, 'kind' | 'metadata'>) =>
  `${kind}/${metadata.name}/${metadata.namespace ?? ''}`;

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

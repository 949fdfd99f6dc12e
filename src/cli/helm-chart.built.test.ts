import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import { CONFIGURATION_HASH } from './chart-files.ts';
import { installationObjects } from './installation-objects.ts';
import { INSTALLATIONS, type InstallationOptions } from './installation-shared.ts';
import { byName, INSTALLATION, type Role, type Workload, WRONG_VALUES } from './testing/deployment.ts';

const deploy = join(import.meta.dirname, '..', '..', 'deploy');
/** The program helm, for instance of `go install helm.sh/helm/v3/cmd/helm@v3.16.4`. */
const helm = process.env['HELM'] ?? '';

/** Only the chart has the hash: who applies manifests restarts the agents. */
function withoutHash(object: Role): Role {
  const { spec } = object as unknown as Partial<Workload>;
  const metadata = spec?.template?.metadata;
  if (!spec || !metadata) return object;
  const { [CONFIGURATION_HASH]: _, ...annotations } = metadata.annotations ?? {};
  const { annotations: __, ...others } = metadata;
  const kept = Object.keys(annotations).length > 0 ? { ...others, annotations } : others;
  return { ...object, spec: { ...spec, template: { ...spec.template, metadata: kept } } } as unknown as Role;
}

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
        assert.deepEqual(byName(rendered.map(withoutHash)), byName(expected as unknown as Role[]));
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
    const { labels, annotations } = agent?.template.metadata ?? {};
    assert.deepEqual(labels, { 'app.kubernetes.io/name': 'fairlead', tier: 'node' });
    assert.deepEqual(Object.keys(annotations ?? {}), [CONFIGURATION_HASH, 'scrape']);
    assert.equal(annotations?.['scrape'], 'yes');
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

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { readConfiguration } from '../agent/configuration.ts';
import { agentConfigurationSchema } from '../agent/configuration-schema.ts';
import { clusterConfigurationSchema } from './cluster-configuration-schema.ts';
import { installationObjects } from './installation-objects.ts';
import { INSTALLATIONS } from './installation-shared.ts';
import { schemaFiles } from './schema-files.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const ajv = new Ajv2020({ allErrors: true, allowUnionTypes: true });
const isAgentConfiguration = ajv.compile(agentConfigurationSchema());
const isCluster = ajv.compile(clusterConfigurationSchema());

test('the files of docs/schema/ equal the output of the generator (node tools/schemas.mjs)', () => {
  const folder = join(ROOT, 'docs', 'schema');
  for (const [name, text] of schemaFiles())
    assert.equal(readFileSync(join(folder, name), 'utf8'), text, name);
  assert.deepEqual(readdirSync(folder).sort(), [...schemaFiles().keys()].sort());
});

const HEAD = { apiVersion: 'fairlead.dev/v1alpha1', kind: 'AgentConfiguration' };

describe('AgentConfiguration', () => {
  for (const parts of INSTALLATIONS) {
    test(`the configuration of manifests --for ${parts} --lb-pool is valid`, () => {
      const objects = installationObjects({
        parts,
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
        pool: ['192.0.2.10-192.0.2.20'],
        commands: true,
        privileged: true,
        metricsAddress: '0.0.0.0',
        monitors: [],
      });
      const configMap = objects.find(({ kind }) => kind === 'ConfigMap') as { data: Record<string, string> };
      isAgentConfiguration(parse(configMap.data['agent.yaml'] ?? ''));
      assert.deepEqual(isAgentConfiguration.errors ?? [], []);
    });
  }

  const VALID: readonly (readonly [what: string, fields: object])[] = [
    ['no field', {}],
    ['a pool as a list', { loadBalancer: { pools: { a: ['192.0.2.0/24'] } } }],
    ['a pool as an object', { loadBalancer: { pools: { a: { addresses: [], autoAssign: false } } } }],
    [
      'selectors of a pool',
      {
        loadBalancer: {
          pools: { a: { serviceAllocation: { serviceSelectors: [{ matchLabels: { a: 'b' } }] } } },
        },
      },
    ],
    ['a duration', { proxy: { conntrack: { udpTimeout: '1m30s' } } }],
    ['a duration of 0', { proxy: { conntrack: { udpTimeout: 0 } } }],
    ['stub domains', { dns: { stubDomains: { 'corp.example': ['10.0.0.53'] } } }],
    [
      'a chained plugin',
      { network: { cni: { chained: [{ type: 'bandwidth', capabilities: { bandwidth: true } }] } } },
    ],
  ];
  for (const [what, fields] of VALID) {
    test(`both the schema and the agent accept ${what}`, () => {
      const document = { ...HEAD, ...fields };
      isAgentConfiguration(document);
      assert.deepEqual(isAgentConfiguration.errors ?? [], []);
      readConfiguration(document, { NODE_NAME: 'node-1' });
    });
  }

  const WRONG: readonly (readonly [what: string, fields: object])[] = [
    ['an unknown field', { proxi: {} }],
    ['an unknown field of a part', { proxy: { mod: 'nftables' } }],
    ['an unknown mode', { proxy: { mode: 'nftable' } }],
    ['an integer that is too large', { proxy: { masqueradeBit: 32 } }],
    ['a string for a flag', { verbose: 'yes' }],
    ['a string for a list', { dns: { addresses: '10.96.0.10' } }],
    ['a wrong duration', { proxy: { conntrack: { udpTimeout: '5 minutes' } } }],
    ['an unknown field of a pool', { loadBalancer: { pools: { a: { address: [] } } } }],
    [
      'a wrong operator',
      {
        loadBalancer: {
          pools: {
            a: {
              serviceAllocation: { serviceSelectors: [{ matchExpressions: [{ key: 'a', operator: 'Is' }] }] },
            },
          },
        },
      },
    ],
    ['a list for a part', { proxy: [] }],
    ['another version', { apiVersion: 'fairlead.dev/v2' }],
  ];
  for (const [what, fields] of WRONG) {
    test(`both the schema and the agent refuse ${what}`, () => {
      const document = { ...HEAD, ...fields };
      assert.equal(isAgentConfiguration(document), false);
      assert.throws(() => readConfiguration(document, { NODE_NAME: 'node-1' }));
    });
  }
});

describe('the file of up --config', () => {
  const example = readFileSync(join(ROOT, 'examples', 'fairlead.yaml'), 'utf8');
  /** The example with its commented fields. */
  const whole = example
    .slice(example.indexOf('apiVersion:'))
    .replace(/^# (?=(controlPlane|lbPool|publish|registryMirror): ?)/gm, '')
    .replace(/^# (?= +\S)/gm, '');

  test('the example is valid, also with the fields that it has as comments', () => {
    for (const text of [example, whole]) {
      isCluster(parse(text));
      assert.deepEqual(isCluster.errors ?? [], []);
    }
    assert.deepEqual(
      Object.keys(parse(whole)).sort(),
      Object.keys(clusterConfigurationSchema().properties ?? {}).sort(),
    );
  });

  const WRONG: readonly (readonly [what: string, fields: object])[] = [
    ['an option that is not a property of the cluster', { detach: true }],
    ['an unknown mode', { mode: 'nftable' }],
    ['no nodes', { nodes: 0 }],
    ['an unknown field of a pool', { lbPool: { a: { adresses: [] } } }],
    ['a string as manifests', { manifests: 'hello.yaml' }],
    ['another kind', { kind: 'Clusters' }],
  ];
  for (const [what, fields] of WRONG) {
    test(`${what} is refused`, () => {
      assert.equal(isCluster({ apiVersion: 'fairlead.dev/v1alpha1', kind: 'Cluster', ...fields }), false);
    });
  }
});

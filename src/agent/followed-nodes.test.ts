import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './configuration.ts';
import { needsAllNodes } from './followed-nodes.ts';

const readNode = (fields: object) =>
  readConfiguration({ kind: 'AgentConfiguration', nodeAddress: '10.0.0.12', network: {}, ...fields });

const ROWS: readonly { name: string; fields: object; all: boolean }[] = [
  { name: 'a node with its own pods only', fields: { pods: {}, network: { overlay: 'none' } }, all: false },
  { name: 'routes to other nodes', fields: { pods: {}, network: { overlay: 'routes' } }, all: true },
  { name: 'a tunnel to other nodes', fields: { pods: {}, network: {} }, all: true },
  { name: 'Services', fields: { pods: {}, network: { overlay: 'none' }, proxy: {} }, all: false },
  { name: 'only Services', fields: { network: null, proxy: {} }, all: false },
  { name: 'Services and DNS', fields: { network: null, proxy: {}, dns: {} }, all: false },
  { name: 'Services and policies', fields: { network: null, proxy: {}, policy: {} }, all: true },
  {
    name: 'DNS, which other nodes serve meanwhile',
    fields: { pods: {}, network: { overlay: 'none' }, dns: {} },
    all: true,
  },
  { name: 'load balancers', fields: { pods: {}, network: { overlay: 'none' }, loadBalancer: {} }, all: true },
  { name: 'policies beside a kubelet', fields: { network: null, policy: {} }, all: true },
  {
    name: 'an agent beside a kubelet without policies',
    fields: { network: { overlay: 'none' }, policy: { enforce: false } },
    all: false,
  },
];

for (const { name, fields, all } of ROWS) {
  test(`${name}: ${all ? 'all Nodes are followed' : 'only its own Node is followed'}`, () => {
    assert.equal(needsAllNodes(readNode(fields)), all);
  });
}

const FIELDS: readonly { name: string; fields: object; kubeconfig?: string; refused?: RegExp }[] = [
  {
    name: 'the kubeconfig of a node that joins is in its state folder',
    fields: { pods: {}, bootstrapKubeconfig: '/b', stateDir: '/s' },
    kubeconfig: '/s/kubeconfig',
  },
  {
    name: 'or where it is configured',
    fields: { pods: {}, bootstrapKubeconfig: '/b', kubeconfig: '/k' },
    kubeconfig: '/k',
  },
  {
    name: 'a bootstrap kubeconfig without pods',
    fields: { bootstrapKubeconfig: '/b' },
    refused: /bootstrapKubeconfig.*needs pods/,
  },
  {
    name: 'serverTLSBootstrap with a file',
    fields: { pods: { serverTLSBootstrap: true, tlsCert: '/c', tlsKey: '/k' } },
    refused: /serverTLSBootstrap.*excludes tlsCert/,
  },
  {
    name: 'a certificate without its key',
    fields: { pods: { tlsCert: '/c' } },
    refused: /tlsKey.*is missing/,
  },
  {
    name: 'pods on a Node without an address',
    fields: { pods: {}, nodeAddress: null },
    refused: /pods\.nodeAddresses: needs an address/,
  },
];

const IDLE: readonly { name: string; fields: object; warnings: RegExp }[] = [
  {
    name: 'pods without a pod network',
    fields: { pods: {}, network: null },
    warnings: /^pods has no effect/,
  },
  { name: 'pods with one', fields: { pods: {} }, warnings: /^$/ },
  {
    name: 'a port for commands without a proxy',
    fields: { commandsBindAddress: '0.0.0.0:10268' },
    warnings: /^commandsBindAddress has no effect/,
  },
  {
    name: 'a port for commands with one',
    fields: { commandsBindAddress: '0.0.0.0:10268', proxy: {} },
    warnings: /^$/,
  },
];

for (const { name, fields, warnings } of IDLE) {
  test(`fields that need another one: ${name}`, () => {
    assert.match(readNode(fields).warnings.join(), warnings);
  });
}

for (const { name, fields, kubeconfig, refused } of FIELDS) {
  test(`fields of a node that joins: ${name}`, () => {
    const read = () => readNode(fields);
    if (refused) assert.throws(read, refused);
    else assert.equal(read().kubeconfig, kubeconfig);
  });
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './configuration.ts';
import { needsAllNodes } from './followed-nodes.ts';

const ROWS: readonly { name: string; fields: object; all: boolean }[] = [
  { name: 'a node with its own pods only', fields: { pods: {}, network: { overlay: 'none' } }, all: false },
  { name: 'routes to other nodes', fields: { pods: {}, network: { overlay: 'routes' } }, all: true },
  { name: 'a tunnel to other nodes', fields: { pods: {}, network: {} }, all: true },
  { name: 'Services', fields: { pods: {}, network: { overlay: 'none' }, proxy: {} }, all: true },
  { name: 'DNS', fields: { pods: {}, network: { overlay: 'none' }, dns: {} }, all: true },
  { name: 'load balancers', fields: { pods: {}, network: { overlay: 'none' }, loadBalancer: {} }, all: true },
  { name: 'an agent beside a kubelet', fields: { network: { overlay: 'none' } }, all: true },
];

for (const { name, fields, all } of ROWS) {
  test(`${name}: ${all ? 'all Nodes are followed' : 'only its own Node is followed'}`, () => {
    assert.equal(needsAllNodes(readConfiguration({ kind: 'AgentConfiguration', ...fields })), all);
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
];

for (const { name, fields, kubeconfig, refused } of FIELDS) {
  test(`fields of a node that joins: ${name}`, () => {
    const read = () => readConfiguration({ kind: 'AgentConfiguration', ...fields });
    if (refused) assert.throws(read, refused);
    else assert.equal(read().kubeconfig, kubeconfig);
  });
}

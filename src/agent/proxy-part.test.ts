import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { Registry } from 'prom-client';
import type { Dataplane, Mode } from '../dataplane/dataplane.ts';
import { createClient } from '../kube/client.ts';
import { type HeldInformer, heldInformer } from '../kube/testing/held-informer.ts';
import type { EndpointSlice, Node, Service, ServiceCidr } from '../kube/types.ts';
import { type ManualClock, manualClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { type FakeDataplane, fakeDataplane } from '../proxy/testing/fake-dataplane.ts';
import type { AgentContext } from './agent-context.ts';
import { readConfiguration } from './configuration.ts';
import type { DataplaneSettings } from './dataplanes.ts';
import type { FollowedNodes } from './followed-nodes.ts';
import type { PolicyPart } from './policy-part.ts';
import type { ProxyKernel } from './proxy-kernel.ts';
import { type ProxyPart, startProxyPart } from './proxy-part.ts';

/** The wiring of a node's proxy, with a dataplane and a kernel that record what is asked of them. */

let folder: string;
let clock: ManualClock;
let calls: string[];
let dataplanes: Map<Mode, FakeDataplane>;
let settings: Map<Mode, DataplaneSettings>;
let closes: (() => Promise<void> | void)[];
let passed: PromiseWithResolvers<void>;
let nodes: HeldInformer<Node>;
let services: HeldInformer<Service>;
let slices: HeldInformer<EndpointSlice>;
let signal: AbortController;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'fairlead-proxy-part-'));
  clock = manualClock(1_000_000);
  calls = [];
  dataplanes = new Map();
  settings = new Map();
  closes = [];
  passed = Promise.withResolvers();
  nodes = heldInformer<Node>(NODE);
  services = heldInformer<Service>(service('web', '10.96.0.1'));
  slices = heldInformer<EndpointSlice>(slice('web', ['10.244.1.2', '10.244.1.3'], '7'));
  signal = new AbortController();
});
afterEach(async () => {
  for (const close of closes.reverse()) await close();
  signal.abort();
  rmSync(folder, { recursive: true });
});

const NODE: Node = {
  metadata: { name: 'node-1' },
  spec: { podCIDR: '10.244.1.0/24', podCIDRs: ['10.244.1.0/24'] },
  status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] },
};

function service(name: string, ip: string): Service {
  return {
    metadata: { namespace: 'shop', name, creationTimestamp: '2026-01-01T00:00:00Z' },
    spec: { type: 'ClusterIP', clusterIP: ip, clusterIPs: [ip], ports: [{ port: 80, protocol: 'TCP' }] },
  } as Service;
}

function slice(name: string, addresses: readonly string[], resourceVersion: string): EndpointSlice {
  return {
    metadata: {
      namespace: 'shop',
      name,
      resourceVersion,
      labels: { 'kubernetes.io/service-name': name },
    },
    addressType: 'IPv4',
    ports: [{ port: 8080, protocol: 'TCP' }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  } as EndpointSlice;
}

/** Stands for the kernel: notes each call. */
function kernel(): ProxyKernel {
  const note =
    (name: string) =>
    (...detail: readonly string[]) =>
      void calls.push([name, ...detail].join(' '));
  return {
    async openDataplane(mode, given) {
      const dataplane = fakeDataplane(mode);
      dataplanes.set(mode, dataplane);
      settings.set(mode, given);
      note('open')(mode);
      return dataplane as Dataplane;
    },
    findOtherProxies: async () => ({ evidence: null, others: [] }),
    takeOverNode: async () => note('take over')(),
    adoptServers: async () => note('adopt servers')(),
    adoptOtherServers: async () => note('adopt other servers')(),
    applyConntrackSettings: () => note('conntrack settings')(),
    createConntrackReconciler: () => ({
      sync: () => note('conntrack sync')(),
      apply: () => note('conntrack apply')(),
      endConnections: async () => 0,
      connected: () => [],
      passed: () => passed.promise,
      settled: async () => undefined,
      close: async () => note('conntrack close')(),
    }),
    createHealthCheckServers: () => ({
      update: () => note('health checks')(),
      close: () => note('health checks close')(),
    }),
    createSynTimers: () => ({
      follow: async (mode) => note('timers')(mode),
      current: null,
      close: () => undefined,
    }),
    createFlowWatch: () => ({
      watch: () => ({ ready: Promise.resolve(), close: () => undefined }),
      recorded: () => ({ since: null, entries: [] }),
      modeChanged: () => note('flows: mode changed')(),
      close: () => undefined,
    }),
    startFailoverPart: () => ({
      report: ({ kind }) => note('failover: outcome')(kind),
      follow: ({ frontends }) => note('failover: change of')(String(frontends.length)),
      close: () => undefined,
    }),
  };
}

function context(mode: Mode): AgentContext {
  const configuration = readConfiguration({
    kind: 'AgentConfiguration',
    nodeName: 'node-1',
    stateDir: folder,
    proxy: { mode },
  });
  // The parts that the proxy does not use are absent.
  return {
    ...{ configuration, clock, logger: silentLogger, registry: new Registry(), signal: signal.signal },
    startsUntracked: false,
    client: createClient(async () => assert.fail('no request is expected'), 'test'),
    onClose: (close: () => Promise<void> | void) => void closes.push(close),
  } as unknown as AgentContext;
}

async function start(mode: Mode, policies: PolicyPart | null = null): Promise<ProxyPart> {
  const own = context(mode);
  const followed = {
    ...{ nodes, own: nodes, isReady: async () => true, allNodes: () => nodes },
  } as unknown as FollowedNodes;
  const { proxy: proxied } = own.configuration;
  assert.ok(proxied);
  return await startProxyPart(
    own,
    proxied,
    {
      node: NODE,
      followed,
      services,
      slices,
      serviceCidrs: heldInformer<ServiceCidr>(),
      policies,
      egress: null,
    },
    kernel(),
  );
}

/** Runs everything that is due after this time. */
async function pass(ms = 0): Promise<void> {
  clock.advance(ms);
  for (let i = 0; i < 20; i++) {
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(0);
  }
}

test('the first programming reaches connection tracking, health checks and failover, then others are taken over', async () => {
  const part = await start('nftables');
  await part.proxy.programmed;
  await pass();
  assert.deepEqual(calls, [
    'conntrack settings',
    'open nftables',
    'conntrack sync',
    'health checks',
    'failover: change of 1',
    'take over',
  ]);
  assert.deepEqual(dataplanes.get('nftables')?.calls, ['sync']);
});

test('a version of slices counts as programmed when stale flows of earlier ones are deleted', async () => {
  const part = await start('nftables');
  await part.proxy.programmed;
  await pass();
  assert.equal(part.programmedSlices, null);
  passed.resolve();
  await pass();
  assert.equal(part.programmedSlices, '7');
});

test('failover learns of endpoints that are gone, and of outcomes that the mode reports', async () => {
  const part = await start('ebpf');
  await part.proxy.programmed;
  await pass();
  calls.length = 0;
  slices.put(slice('web', ['10.244.1.2'], '8'));
  await pass(2000);
  settings.get('ebpf')?.onOutcome({
    kind: 'reset',
    client: '10.244.1.9',
    protocol: 'TCP',
    service: { ip: '10.96.0.1', port: 80 },
    endpoint: { ip: '10.244.1.2', port: 8080 },
  } as never);
  assert.deepEqual(
    calls.filter((call) => call.startsWith('failover')),
    ['failover: change of 1', 'failover: outcome reset'],
  );
});

test('a change of mode reaches the parts that depend on it, when the new mode is complete', async () => {
  const part = await start('nftables');
  await part.proxy.programmed;
  await pass(1000);
  calls.length = 0;
  await part.switchMode('userspace');
  await pass();
  assert.equal(part.mode, 'userspace');
  assert.deepEqual(dataplanes.get('nftables')?.calls.slice(-2), ['remove', 'close']);
  assert.deepEqual(calls, [
    'open userspace',
    'conntrack sync',
    'health checks',
    'failover: change of 0',
    // The previous mode has no flows left.
    'conntrack sync',
    'flows: mode changed',
    'timers userspace',
  ]);
});

test('rules that another program has changed are repaired at once', async () => {
  const part = await start('nftables');
  await part.proxy.programmed;
  await pass();
  const dataplane = dataplanes.get('nftables');
  assert.ok(dataplane);
  dataplane.calls.length = 0;
  settings.get('nftables')?.onForeignChange();
  await pass(2000);
  assert.deepEqual(dataplane.calls, ['verify']);
});

test('IPVS servers of earlier programs are adopted before the mode is opened', async () => {
  const part = await start('ipvs');
  await part.proxy.programmed;
  assert.deepEqual(calls.slice(0, 4), [
    'conntrack settings',
    'adopt servers',
    'adopt other servers',
    'open ipvs',
  ]);
});

test('a mode that opens connections itself programs nothing before the policies are known', async () => {
  const ready = Promise.withResolvers<void>();
  const policies = { ready: ready.promise, setProxies: () => undefined, mayBeDenied: () => false };
  const starting = start('userspace', policies as unknown as PolicyPart);
  await pass(5000);
  assert.deepEqual(dataplanes.get('userspace')?.calls, []);
  ready.resolve();
  const part = await starting;
  await part.proxy.programmed;
  assert.deepEqual(dataplanes.get('userspace')?.calls, ['sync']);
});

test('the proxy ends before the parts that its last events reach', async () => {
  const part = await start('nftables');
  await part.proxy.programmed;
  await pass();
  calls.length = 0;
  const dataplane = dataplanes.get('nftables');
  assert.ok(dataplane);
  dataplane.close = async () => void calls.push('dataplane close');
  for (const close of closes.reverse()) await close();
  closes = [];
  assert.deepEqual(calls, ['dataplane close', 'health checks close', 'conntrack close']);
});

import assert from 'node:assert/strict';
import { closeSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { identify } from '../kernel/process-identity.ts';
import { listenOnLoopback } from './loopback-listeners.ts';
import { checkPublishedPorts, portsOpen, readPortReports } from './published-ports.ts';
import { parsePublishedPorts } from './service-port.ts';
import { type ClusterState, readCluster } from './state.ts';

const root = mkdtempSync(join(tmpdir(), 'flt-ports-'));
const earlier = process.env['FAIRLEAD_STATE'];
const taken = listenOnLoopback(0);
const free = listenOnLoopback(0);
for (const fd of free.descriptors) closeSync(fd);

/** Writes a cluster of which nothing runs but, if `isServing`, the process of its published ports. */
function writeState(name: string, apiPort: number, published: string, isServing: boolean): void {
  mkdirSync(join(root, name));
  const publishedPorts = parsePublishedPorts([published]);
  writeFileSync(
    join(root, name, 'cluster.json'),
    JSON.stringify({ name, apiPort, publishedPorts, loadBalancerPools: [], nodes: [] }),
  );
  const writer = isServing ? identify(process.pid) : null;
  const ports = [{ text: published, problem: null }];
  writeFileSync(join(root, name, 'published-ports.json'), JSON.stringify({ writer, ports }));
}

before(() => {
  process.env['FAIRLEAD_STATE'] = root;
  writeState('serving', 1, `${taken.port}:80/svc/web`, true);
  writeState('stopped', 2, `${taken.port}:80/svc/web`, false);
});
after(() => {
  if (earlier === undefined) delete process.env['FAIRLEAD_STATE'];
  else process.env['FAIRLEAD_STATE'] = earlier;
  rmSync(root, { recursive: true });
  for (const fd of taken.descriptors) closeSync(fd);
});

const ROWS: readonly {
  readonly name: string;
  readonly port: number;
  readonly cluster: string | null;
  readonly says: RegExp | null;
}[] = [
  { name: 'a free port is accepted', port: free.port, cluster: null, says: null },
  {
    name: 'a port in use is refused',
    port: taken.port,
    cluster: null,
    says: /--publish \d+:80\/svc\/api: port \d+ of this machine is in use/,
  },
  {
    name: 'the port that the cluster itself has open is accepted for another Service',
    port: taken.port,
    cluster: 'serving',
    says: null,
  },
  {
    name: 'a port that another program took while the cluster was stopped is refused',
    port: taken.port,
    cluster: 'stopped',
    says: /is in use/,
  },
  {
    name: 'the port of the API server of a stopped cluster is refused',
    port: 2,
    cluster: null,
    says: /port 2 is reserved for the API server of cluster stopped/,
  },
];
for (const { name, port, cluster, says } of ROWS) {
  test(name, () => {
    const existing = cluster === null ? null : readCluster(cluster);
    const check = () => checkPublishedPorts(parsePublishedPorts([`${port}:80/svc/api`]), existing);
    if (says) assert.throws(check, says);
    else check();
  });
}

test('ports are closed while their process is not running', () => {
  const problems = ['serving', 'stopped'].map(
    (name) => readPortReports(readCluster(name) as ClusterState)[0]?.problem,
  );
  assert.deepEqual(problems, [null, 'its process is not running']);
});

test('up waits until a port that is no longer published is closed', async () => {
  const state = readCluster('serving') as ClusterState;
  await portsOpen(state, AbortSignal.abort());
  await assert.rejects(
    portsOpen({ ...state, publishedPorts: [] }, AbortSignal.abort()),
    /:80\/svc\/web: it is no longer published, and still open/,
  );
  const stopped = readCluster('stopped') as ClusterState;
  await portsOpen({ ...stopped, publishedPorts: [] }, AbortSignal.abort());
});

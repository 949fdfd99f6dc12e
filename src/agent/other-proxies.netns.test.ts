import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, rmdirSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { makeTestGroup, removeTestGroup } from '../dataplane/ebpf/testing/client.ts';
import { openPinnedMap } from '../kernel/bpf/map.ts';
import { makePinDirectory } from '../kernel/bpf/pin.ts';
import { systemClock } from '../lib/clock.ts';
import { type Logger, silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import type { BpfPlace } from './bpf-leftovers.ts';
import { describeState, findOtherProxies, isLiveProxy, takeOverFromOthers } from './other-proxies.ts';
import { otherProxyFindings } from './preflight.ts';
import { CALICO_LIKE, CILIUM_LIKE, leaveProxy } from './testing/imitated-bpf-proxy.ts';

// Each file of packet tests runs in its own network namespace, which is the node here. The other products' state is
// imitated: `leaveProxy` says how far.
const SERVICE = '10.96.0.77';
const ENDPOINT = '127.0.0.1';

const ROWS = [
  { like: CILIUM_LIKE, name: 'Cilium', process: ['cilium-agent'], device: 'cilium_host' },
  { like: CALICO_LIKE, name: 'Calico (eBPF)', process: ['calico-node', '-felix'], device: 'cali0123456789a' },
] as const;

function warningsInto(warnings: object[]): Logger {
  const logger: Logger = { ...silentLogger, warn: (fields) => warnings.push(fields), child: () => logger };
  return logger;
}

describe('a node on which another product translated Services', () => {
  let group: string;
  let place: BpfPlace;
  let server: Server;
  let port: number;
  let left: { dispose(): void } | null = null;
  let running: ChildProcess | null = null;
  const open = new Set<Socket>();

  before(async () => {
    execFileSync('ip', ['link', 'set', 'lo', 'up']);
    server = createServer((_, response) => response.end('answered'));
    server.on('connection', (socket) => open.add(socket));
    server.listen(0, ENDPOINT);
    await once(server, 'listening');
    const address = server.address();
    port = typeof address === 'object' && address !== null ? address.port : 0;
  });
  after(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  beforeEach(() => {
    group = makeTestGroup();
    place = { group, pins: `/sys/fs/bpf/flt-${randomBytes(3).toString('hex')}` };
  });
  afterEach(async () => {
    running?.kill('SIGKILL');
    running = null;
    left?.dispose();
    left = null;
    rmdirSync(place.pins);
    await removeTestGroup(group);
    for (const { device } of ROWS) {
      try {
        execFileSync('ip', ['link', 'delete', device], { stdio: 'ignore' });
      } catch {
        // Not every test makes one.
      }
    }
  });

  /** Opens a connection to the Service from a process in the node's control group. */
  const isAnswered = async (): Promise<boolean> => {
    const script = 'echo $$ >"$0/cgroup.procs" && exec curl -s --max-time 1 "$1"';
    try {
      const { stdout } = await promisify(execFile)('sh', ['-c', script, group, `http://${SERVICE}/`]);
      return stdout === 'answered';
    } catch {
      return false;
    }
  };
  const find = async (name: string) =>
    (await findOtherProxies(place, [])).find(({ proxy }) => proxy.name === name);
  const takeOver = (logger: Logger = silentLogger) =>
    takeOverFromOthers({ mode: 'nftables', place, excluded: [] }, systemClock, logger);
  /** Starts a process with the words of a product's command line. */
  async function startProcess([program, ...words]: readonly string[]): Promise<void> {
    running = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6)', '--', ...words], {
      argv0: program,
      stdio: 'ignore',
    });
    await once(running, 'spawn');
  }

  for (const { like, name, device } of ROWS) {
    test(`${name} is stopped: its translation ends, its pod network stays and is named`, async () => {
      left = leaveProxy(like, place, [[SERVICE, ENDPOINT, port]]);
      execFileSync('ip', ['link', 'add', device, 'type', 'bridge']);
      assert.ok(await isAnswered(), 'the imitation translates');
      const state = await find(name);
      assert.ok(state && !isLiveProxy(state));
      assert.match(describeState(state), new RegExp(`1 programs at sockets; entries of ${like.map}`));
      assert.deepEqual(
        otherProxyFindings(state).map(({ level }) => level),
        ['note', 'note'],
      );
      const warnings: object[] = [];
      const removed = await takeOver(warningsInto(warnings));
      assert.equal(removed.length, 1);
      assert.match(removed[0] ?? '', new RegExp(`^${name.replace(/[()]/g, '\\$&')}: `));
      assert.equal(warnings.length, 1);
      assert.match(JSON.stringify(warnings[0]), new RegExp(device));
      assert.equal(await isAnswered(), false, 'the program is detached');
      const map = openPinnedMap(join(place.pins, 'tc', 'globals', like.map));
      assert.deepEqual(map?.keys(), [], 'programs of the pod network find no Service');
      map?.close();
      if (like.links !== null) assert.deepEqual(readdirSync(join(place.pins, like.links)), []);
      assert.match(execFileSync('ip', ['link', 'show', device], { encoding: 'utf8' }), new RegExp(device));
      assert.deepEqual(await takeOver(), [], 'nothing is left for the next start');
    });
  }

  for (const { like, name, process: words } of ROWS) {
    test(`${name} runs: it is reported, and its state is kept`, async () => {
      left = leaveProxy(like, place, [[SERVICE, ENDPOINT, port]]);
      await startProcess(words);
      const state = await eventually(
        () => find(name),
        (found) => found?.running != null,
      );
      assert.ok(state && isLiveProxy(state));
      assert.match(state.running ?? '', /^process [0-9]+$/);
      const [finding, ...more] = otherProxyFindings(state);
      assert.deepEqual([finding?.level, more], ['problem', []]);
      assert.deepEqual(await takeOver(), []);
      assert.ok(await isAnswered());
    });
  }

  test('Cilium runs as a CNI plugin beside another proxy: no problem, and nothing is removed', async () => {
    left = leaveProxy({ ...CILIUM_LIKE, program: 'other_connect4' }, place, [[SERVICE, ENDPOINT, port]]);
    await startProcess(['cilium-agent']);
    const state = await eventually(
      () => find('Cilium'),
      (found) => found?.running != null,
    );
    assert.ok(state && !isLiveProxy(state));
    assert.deepEqual(otherProxyFindings(state), []);
    assert.deepEqual(await takeOver(), []);
  });

  test('objects of other programs are left alone', async () => {
    const other = { ...CILIUM_LIKE, program: 'other_connect4', map: 'cilium_ct4_global' };
    left = leaveProxy(other, place, [[SERVICE, ENDPOINT, port]]);
    assert.deepEqual(await takeOver(), []);
    assert.ok(await isAnswered());
  });

  test('nothing of another product: nothing is found', async () => {
    makePinDirectory(place.pins);
    assert.deepEqual(await findOtherProxies(place, []), []);
  });
});

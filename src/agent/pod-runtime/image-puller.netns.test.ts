import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { hasCode } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { openImageStore } from '../../runtime/images/image-store.ts';
import { buildImage } from '../../runtime/images/testing/image-builder.ts';
import { startRegistry } from '../../runtime/images/testing/registry-server.ts';
import { createImagePuller, type ImagePullerOptions, type PullRequest } from './image-puller.ts';
import type { PullSettings } from './machine-pulls.ts';

const MAIN = join(import.meta.dirname, '..', '..', 'cli', 'fairlead.ts');
const PROGRAM = { file: process.execPath, words: [MAIN, 'pull-image'] };
const SECRET = 'correct-horse-battery';

let folder: string;
let network: number;
let ending: AbortController;
let closers: (() => void)[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-puller-'));
  network = openSync('/proc/self/ns/net', 'r');
  ending = new AbortController();
  closers = [];
});
afterEach(() => {
  ending.abort();
  for (const close of closers) close();
  closeSync(network);
  rmSync(folder, { recursive: true, force: true });
});

function puller(program: ImagePullerOptions['program'], { isRootless = false } = {}) {
  const settings: PullSettings = {
    proxies: null,
    authorities: null,
    mirrors: [],
    networks: ['10.96.0.0/16', 'fd00:10:96::/112'],
  };
  writeFileSync(join(folder, 'settings.json'), JSON.stringify(settings));
  return createImagePuller({
    pulls: { network: isRootless ? null : network, settings: join(folder, 'settings.json') },
    program,
    folder: join(folder, 'images'),
    limits: {},
    plainHttp: [],
    cgroupParent: '/flt-puller',
    clock: systemClock,
    logger: silentLogger,
    signal: ending.signal,
  });
}
const notHere = async () => assert.fail('pulled by the node');
const script = (text: string) => ({ file: '/bin/sh', words: ['-c', text] });

/** The command lines and environments of the processes that pull for this test. */
function pulling(): string[] {
  return readdirSync('/proc')
    .filter((entry) => /^[0-9]+$/.test(entry))
    .flatMap((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        const isOurs = words.includes(`${MAIN}\0pull-image`);
        return isOurs ? [words + readFileSync(`/proc/${pid}/environ`, 'utf8')] : [];
      } catch (error) {
        if (hasCode(error, 'ENOENT', 'ESRCH')) return [];
        throw error;
      }
    });
}

/** A registry that accepts requests and never answers. */
async function silentRegistry(): Promise<string> {
  const server = createServer(() => {});
  await once(server.listen(0, '127.0.0.1'), 'listening');
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('a pull by a process in another network', () => {
  test('stores the image, and the password is neither in arguments nor in the environment', async () => {
    const registry = await startRegistry();
    closers.push(() => void registry.close());
    registry.access = { user: 'me', password: SECRET, token: false };
    const built = buildImage([[{ path: 'hello', contents: 'there' }]]);
    for (const [digest, data] of built.blobs) registry.blobs.set(digest, data);
    registry.tags.set('app:1', built.manifest.digest);
    const seen: string[] = [];
    const add = registry.requests.push.bind(registry.requests);
    registry.requests.push = (...urls) => {
      seen.push(...pulling());
      return add(...urls);
    };
    const name = `${registry.host}/app:1`;
    await puller(PROGRAM)(name, { username: 'me', password: SECRET }, notHere);
    assert.ok(openImageStore(join(folder, 'images')).find(name));
    assert.ok(seen.length > 0);
    assert.ok(seen.every((text) => !text.includes(SECRET)));
  });
  test('one registry leaves room for another', async () => {
    const [host, other] = [await silentRegistry(), await silentRegistry()];
    const pull = puller(PROGRAM);
    const all = Array.from({ length: 5 }, (_, i) => pull(`${host}/app:${i}`, null, notHere));
    const settled = Promise.allSettled([...all, pull(`${other}/app:1`, null, notHere)]);
    await eventually(
      () => pulling().length,
      (count) => count === 4,
    );
    ending.abort();
    await settled;
  });
  test('three of a registry at once, which end with the node', async () => {
    const host = await silentRegistry();
    const pull = puller(PROGRAM);
    const all = Array.from({ length: 5 }, (_, i) => pull(`${host}/app:${i}`, null, notHere));
    const settled = Promise.allSettled(all);
    await eventually(
      () => pulling().length,
      (count) => count === 3,
    );
    ending.abort();
    assert.deepEqual(
      (await settled).map(({ status }) => status),
      all.map(() => 'rejected'),
    );
    await eventually(
      () => pulling().length,
      (count) => count === 0,
    );
  });
  test('it ends when its pod runtime has been killed', async () => {
    const request: PullRequest = {
      ...{ name: `${await silentRegistry()}/app:1`, folder: join(folder, 'images'), limits: {} },
      ...{ credentials: null, plainHttp: [], proxies: null, mirrors: [] },
    };
    const child = spawn(PROGRAM.file, PROGRAM.words, { stdio: ['pipe', 'ignore', 'ignore'] });
    child.stdin.write(`${JSON.stringify(request)}\n`);
    await eventually(
      () => pulling().length,
      (count) => count === 1,
    );
    child.stdin.end();
    assert.deepEqual(await once(child, 'exit'), [1, null]);
  });
  for (const [what, text, message] of [
    ['says nothing', 'exit 3', /was ended: exited with status 3/],
    ['is killed', 'kill -9 $$', /was ended: killed by SIGKILL/],
    ['says too much', 'yes', /was ended: its answer is too long/],
    ['says what is not JSON', 'echo hello', /was ended: exited with status 0/],
    [
      'has failed',
      `echo '{"problem":"not found","hint":"try this"}'`,
      /^failed to pull image "127\.0\.0\.1:1\/app:1": not found$/,
    ],
  ] as const)
    test(`a process that ${what} is an error of the pull`, () =>
      assert.rejects(puller(script(text))('127.0.0.1:1/app:1', null, notHere), {
        code: 'ErrImagePull',
        message,
      }));
  for (const registry of ['10.96.3.4:5000', '[fd00:10:96::5]:5000'])
    test(`${registry}, in the cluster's networks, is the node's own matter`, async () => {
      let isHere = false;
      await puller(script('exit 3'))(`${registry}/app:1`, null, async () => {
        isHere = true;
      });
      assert.ok(isHere);
    });
  test('a cluster without root names the command that pulls', () =>
    assert.rejects(
      puller(script('exit 3'), { isRootless: true })('127.0.0.1:1/app:1', null, async () => {
        throw new Error('no way');
      }),
      { code: 'ErrImagePull', message: /no way/, hint: /fairlead image pull 127\.0\.0\.1:1\/app:1/ },
    ));
});

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CLASS_IN, emptyAnswer, type Query, RCODE, TYPE } from '../src/dns/message.ts';
import { type FakeUpstream, startUpstream } from '../src/dns/testing/upstream.ts';
import { createNetns, removeNetns } from '../src/kernel/netns.ts';
import { findProgram } from '../src/kernel/program-path.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { HELLO, LAUNCHER } from './testing/cluster.ts';
import { cannotRun, ordinaryUser } from './testing/ordinary-user.ts';

/**
 * `up --egress` of an ordinary user, on a machine that is this file's own network namespace. Another one represents external
 * networks, to which the machine has its default route.
 */

const UID = 41_010;
const PROGRAMS = ['slirp4netns', 'pasta'];
const reason = cannotRun(UID);
const world = `flt-${randomBytes(3).toString('hex')}-world`;
const WORLD = '192.0.2.2';
const UPLINK = '192.0.2.1';
const NAME_SERVER = '127.0.0.53';
/** Addresses behind which the machine's loopback could be: slirp4netns' own, and the gateway that pasta has taken over. */
const GATEWAYS = ['10.0.2.2', WORLD];
const WORLD_PORT = 8000;
const MACHINE_PORT = 8001;

const here = (file: string, ...words: string[]) => execFileSync(file, words, { encoding: 'utf8' });
const there = (file: string, ...words: string[]) =>
  here('nsenter', `--net=/run/netns/${world}`, file, ...words);

/** External names. */
function answerOf({ question: { name, type } }: Query) {
  if (name !== 'world.example') return emptyAnswer(RCODE.NXDOMAIN);
  if (type !== TYPE.A) return emptyAnswer(RCODE.NOERROR);
  const data = Uint8Array.from(WORLD.split('.').map(Number));
  return { ...emptyAnswer(RCODE.NOERROR), answers: [{ name, type, class: CLASS_IN, ttl: 1, data }] };
}

for (const program of PROGRAMS) describeEgress(program);

function describeEgress(program: string): void {
  const isMissing = findProgram(program) === null ? `${program} is not installed` : false;
  describe(`egress of an ordinary user through ${program}`, { skip: reason ?? isMissing }, () => {
    const user = ordinaryUser(UID);
    const folder = mkdtempSync(join(tmpdir(), 'flt-egress-'));
    const servers: ChildProcess[] = [];
    let nameServer: FakeUpstream | null = null;

    const covered: string[] = [];
    /** Mounts a file over another one, for the programs of this test. */
    function cover(path: string, by: string): void {
      const file = here('readlink', '-f', path).trim();
      here('mount', '--bind', by, file);
      covered.push(file);
    }

    const programs = join(folder, 'bin');
    /** Makes a PATH with all programs of the machine but the other ones that carry packets. */
    function makeOtherPrograms(): void {
      mkdirSync(programs);
      for (const from of (process.env['PATH'] ?? '').split(':').filter((one) => existsSync(one)))
        for (const name of readdirSync(from))
          if (!existsSync(join(programs, name)) && (name === program || !PROGRAMS.includes(name)))
            symlinkSync(join(from, name), join(programs, name));
    }
    const fairlead = (...words: string[]) => user.run(LAUNCHER, words, { PATH: programs });

    before(async () => {
      // Both mounts are private to this file's programs (tools/private-node).
      const tun = join(folder, 'tun');
      here('mount', '-t', 'tmpfs', 'tmpfs', folder);
      here('mknod', '-m', '666', tun, 'c', '10', '200');
      cover('/dev/net/tun', tun);
      const resolvConf = join(folder, 'resolv.conf');
      writeFileSync(resolvConf, `nameserver ${NAME_SERVER}\n`);
      cover('/etc/resolv.conf', resolvConf);
      makeOtherPrograms();
      createNetns(world);
      here('ip', 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', world);
      here('ip', 'address', 'add', `${UPLINK}/24`, 'dev', 'up0');
      there('ip', 'address', 'add', `${WORLD}/24`, 'dev', 'eth0');
      here('ip', 'link', 'set', 'up0', 'up');
      there('ip', 'link', 'set', 'eth0', 'up');
      here('ip', 'route', 'add', 'default', 'via', WORLD);
      const echo = [LAUNCHER, 'echo'];
      servers.push(
        spawn('nsenter', [`--net=/run/netns/${world}`, ...echo, `--port=${WORLD_PORT}`], { stdio: 'ignore' }),
        spawn(LAUNCHER, ['echo', `--port=${MACHINE_PORT}`], { stdio: 'ignore' }),
      );
      nameServer = await startUpstream(answerOf, { netns: null, address: NAME_SERVER });
      const { status, error } = await fairlead('up', '--detach', '--egress', '-f', HELLO);
      assert.equal(status, 0, error);
    });
    after(async () => {
      await fairlead('down', '--all');
      for (const server of servers) server.kill('SIGKILL');
      await nameServer?.close();
      removeNetns(world);
      for (const file of covered) here('umount', '--lazy', file);
      here('umount', '--lazy', folder);
      rmSync(folder, { recursive: true });
      user.remove();
    });

    /** Sends a request from a pod; returns the client's address that the server sees, or null. */
    async function askFromPod(host: string, port: number): Promise<string | null> {
      const url = `http://${host}:${port}/clientip`;
      const words = ['exec', 'client', '--', 'fairlead', 'request', url, '-o', 'json', '--timeout', '5000'];
      const { out } = await fairlead(...words);
      const [answer = ''] = Object.keys((JSON.parse(out || '{}') as { answers?: object }).answers ?? {});
      return /^([0-9.]+):[0-9]+$/.exec(answer.trim())?.[1] ?? null;
    }
    const reachesWorld = (host: string) =>
      eventually(
        () => askFromPod(host, WORLD_PORT),
        (seen) => seen === UPLINK,
        60_000,
      );

    test('pods reach external networks with the address of the machine', async () => {
      await reachesWorld(WORLD);
      assert.match((await fairlead('status')).out, /^ipv4 +tap0 +Open$/m);
    });

    test('pods resolve external names by a name server on the loopback of the machine', async () => {
      await reachesWorld('world.example');
    });

    test('pods do not reach programs of the machine, nor its loopback', async () => {
      here(LAUNCHER, 'request', `http://${UPLINK}:${MACHINE_PORT}`);
      for (const address of [UPLINK, ...GATEWAYS])
        assert.equal(await askFromPod(address, MACHINE_PORT), null, address);
    });

    test('a program that was killed is named by status, and up starts it again', async () => {
      const record = join(user.home, '.local/state/fairlead/.namespaces/way-out.json');
      const { process: carrier } = JSON.parse(readFileSync(record, 'utf8')) as { process: { pid: number } };
      process.kill(carrier.pid, 'SIGKILL');
      await eventually(
        async () => (await fairlead('status')).out,
        (text) => /the program that carries the packets has ended; start it again: fairlead up/.test(text),
        60_000,
      );
      assert.equal((await fairlead('up', '--detach')).status, 0);
      await reachesWorld(WORLD);
    });

    test('down leaves no process', async () => {
      assert.equal((await fairlead('down')).status, 0);
      await eventually(
        () => Promise.resolve(user.processes()),
        (left) => left.length === 0,
      );
    });

    test('without rights on the device for it, up says so, and leaves nothing', async () => {
      here('chmod', '600', join(folder, 'tun'));
      const { status, error } = await fairlead('up', '--detach', '--egress');
      assert.equal(status, 1);
      assert.match(error, /--egress is not possible without root: it needs \/dev\/net\/tun/);
      assert.deepEqual(user.processes(), []);
    });
  });
}

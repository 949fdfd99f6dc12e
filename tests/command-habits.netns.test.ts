import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { CHECK_NAMESPACE } from '../src/conformance/check-cluster.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { execFolder } from '../src/runtime/exec-files.ts';
import {
  type Cluster,
  HELLO,
  reserveCluster,
  runFairlead,
  spawnFairlead,
  startCluster,
} from './testing/cluster.ts';

// What people who know kubectl and docker type, and what they do when it goes wrong, on one cluster.

const ENDS = `
apiVersion: v1
kind: Pod
metadata: {name: ends}
spec:
  containers: [{name: c, image: fairlead, command: [sh, -c, 'echo the settings are missing; exit 3']}]
`;
const WARNED = `
apiVersion: v1
kind: Service
metadata: {name: warned, annotations: {service.kubernetes.io/topology-aware-hints: auto}}
spec: {ports: [{port: 80}]}
`;

const HEADLESS = `
apiVersion: v1
kind: Service
metadata: {name: headless}
spec: {clusterIP: None, ports: [{port: 6379}]}
`;
const OUTPUT_SCHEMA = new Ajv2020({ allowUnionTypes: true, validateFormats: false, strict: false });
const OUTPUT_ID = 'urn:fairlead:schema:command-output:v1alpha1';
OUTPUT_SCHEMA.addSchema(
  JSON.parse(
    readFileSync(join(import.meta.dirname, '..', 'docs', 'schema', 'command-output.json'), 'utf8'),
  ) as object,
);

describe('habits of kubectl and docker', () => {
  const reserved = reserveCluster();
  let started: Cluster | undefined;
  const cluster = (): Cluster => {
    assert.ok(started);
    return started;
  };
  before(async () => {
    started = await startCluster(['--nodes', '1', '-f', HELLO], reserved);
  });
  after(() => started?.down());

  const programs: readonly (readonly [
    what: string,
    words: readonly string[],
    status: number,
    says: RegExp,
  ])[] = [
    ['a command without --', ['client', 'echo', 'hi'], 0, /^hi$/m],
    ['-it in front, without a terminal', ['-it', 'client', '--', 'echo', 'hi'], 0, /^hi$/m],
    ["a command's own status", ['client', 'sh', '-c', 'exit 7'], 7, /^$/],
    ['no such program in a pod', ['client', 'nosuch'], 127, /nosuch/],
    ['no such program on a node', ['node/node-1', 'nosuch'], 127, /nosuch/],
    ['no such program outside', ['outside', 'nosuch'], 127, /nosuch/],
    ['a file that cannot be executed in a pod', ['client', '/etc/passwd'], 126, /[Pp]ermission denied/],
    ['a file that cannot be executed on a node', ['node/node-1', '/etc/passwd'], 126, /[Pp]ermission denied/],
  ];
  for (const [what, words, status, says] of programs) {
    test(`exec: ${what}`, async () => {
      const { status: code, out, error } = await cluster().fairlead('exec', ...words);
      assert.equal(code, status, error);
      assert.match(out + error, says);
    });
  }

  const printed: readonly (readonly [command: string, words: readonly string[]])[] = [
    ['status', []],
    ['clusters', []],
    ['explain', ['client', 'svc/hello:80']],
    ['explain', ['svc/hello', '--modes']],
    ['explain', ['--who-can', 'client:80']],
    ['trace', ['client', 'svc/hello:80']],
    ['mode', ['nftables']],
    ['fault', []],
    ['image', ['ls']],
    ['learn', []],
    ['doctor', []],
  ];
  for (const [name, words] of printed) {
    test(`${[name, ...words].join(' ')} -o json is valid by docs/schema/command-output.json`, async () => {
      const all = [name, ...words, '-o', 'json'];
      const isOfCluster = !['clusters', 'doctor'].includes(name);
      const { out, error } = isOfCluster
        ? await cluster().fairlead(...all)
        : await runFairlead(reserved.stateRoot, all);
      const isValid = OUTPUT_SCHEMA.getSchema(`${OUTPUT_ID}#/$defs/${name}`);
      assert.ok(isValid);
      assert.equal(isValid(JSON.parse(out || error)), true, JSON.stringify(isValid.errors?.slice(0, 5)));
    });
  }

  test('ps and top show what each process is', async () => {
    const { out } = await cluster().fairlead('status', '-o', 'json');
    const { processes } = JSON.parse(out) as { processes: { name: string; pid: number }[] };
    const names = processes.map(({ pid }) => readFileSync(`/proc/${pid}/comm`, 'utf8').trim());
    assert.deepEqual(names.sort(), ['fairlead agent', 'fl-control-plan', 'fl-pod-runtime', 'fl-supervise']);
  });

  test('status shows no address of a headless Service, and no problem with it', async () => {
    await cluster().apply(HEADLESS);
    const { out } = await cluster().fairlead('status', '-o', 'json');
    const { services } = JSON.parse(out) as { services: { name: string; frontends: string[] }[] };
    assert.deepEqual(services.find(({ name }) => name === 'headless')?.frontends, []);
  });

  for (const place of ['client', 'node/node-1', 'outside']) {
    test(`exec: a signal ends the command: ${place}`, async () => {
      const status = await endedBy(
        'SIGINT',
        ['exec', place, 'sh', '-c', 'echo ready; exec sleep 600'],
        /ready/,
      );
      assert.equal(status, 130);
    });
  }

  test('clusters: names, states and servers', async () => {
    const { name } = cluster();
    const { out } = await runFairlead(reserved.stateRoot, ['clusters']);
    assert.match(out, new RegExp(`^${name} +running +1 +nftables +ipv4 +https://127`, 'm'));
    assert.match(
      (await runFairlead(reserved.stateRoot, ['clusters', '-q'])).out,
      new RegExp(`^${name}$`, 'm'),
    );
  });

  const logs: readonly (readonly [what: string, words: readonly string[], status: number, says: RegExp])[] = [
    ['of a workload', ['deploy/hello', '--tail', '1'], 0, /^hello-.*HTTP on port 8080/],
    ['of a pod that does not exist', ['clint'], 1, /did you mean client\?/],
    ['of a container that does not exist', ['client', '-c', 'x'], 1, /no such container .*: x/],
    ['of a run that did not take place', ['-p', 'client'], 1, /previous terminated container/],
    ['of something else', ['a/b/c/d'], 2, /not a pod or workload/],
  ];
  for (const [what, words, status, says] of logs) {
    test(`logs ${what}`, async () => {
      const { status: code, out, error } = await cluster().fairlead('logs', ...words);
      assert.equal(code, status, error);
      assert.match(out + error, says);
    });
  }

  test('image ls: the built-in images too', async () => {
    const { out } = await cluster().fairlead('image', 'ls');
    assert.match(out, /^host .*built in/m);
    assert.match(out, /^fairlead .*built in/m);
  });

  test('explain: an external name without a way out', async () => {
    const { status: code, out } = await cluster().fairlead('explain', 'client', 'example.com:443');
    assert.equal(code, 1);
    assert.match(out, /^ {2}because .* no route out of the cluster$/m);
    assert.match(out, /^ {2}fix: .*up --egress/m);
  });

  test('up: warnings of the API server are shown', async () => {
    const { error } = await up(WARNED, '60');
    assert.match(error, /warning: annotation service\.kubernetes\.io\/topology-aware-hints is deprecated/);
  });

  test('status: repeats a warning of the API server as long as it holds', async () => {
    const shown = async () => {
      const { out } = await cluster().fairlead('status', '-o', 'json');
      return (JSON.parse(out) as { warnings: string[] }).warnings.filter((text) =>
        /hints is deprecated/.test(text),
      );
    };
    assert.match((await shown()).join('\n'), /^services default\/warned: annotation [^\n]*$/);
    await cluster().ask('annotate', 'service', 'warned', 'service.kubernetes.io/topology-aware-hints-');
    assert.deepEqual(await shown(), []);
  });

  test('up -o json: what was made, for a program', async () => {
    const words = ['up', '--detach', '-o', 'json'];
    const { status: code, out, error } = await cluster().fairlead(...words);
    assert.equal(code, 0, error);
    const isValid = OUTPUT_SCHEMA.getSchema(`${OUTPUT_ID}#/$defs/up`);
    assert.equal(isValid?.(JSON.parse(out)), true, JSON.stringify(isValid?.errors));
  });

  test('up: a container that ends is not ready, and its last line is shown', async () => {
    await cluster().apply(ENDS);
    await eventually(
      () => cluster().ask('get', 'pod', 'ends', '-o', 'jsonpath={.status.containerStatuses[0].restartCount}'),
      (count) => Number(count) > 0,
    );
    const { status: code, error } = await up(ENDS, '6');
    assert.equal(code, 1);
    assert.match(error, /Pod ends: container c wrote at last: the settings are missing/);
    await cluster().ask('delete', 'pod', 'ends', '--now');
  });

  test('check: Ctrl-C leaves no namespaces', async () => {
    const status = await endedBy('SIGINT', ['check'], null, async () => {
      const namespaces = await cluster().ask('get', 'namespaces', '-o', 'name');
      return namespaces.includes(CHECK_NAMESPACE);
    });
    assert.equal(status, 130);
    await eventually(
      () => cluster().ask('get', 'namespaces', '-o', 'name'),
      (names) => !names.includes(CHECK_NAMESPACE),
    );
  });

  test('ui: a port in use ends it', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as { port: number };
      const { status: code, error } = await cluster().fairlead('ui', '--port', String(port));
      assert.equal(code, 1);
      assert.match(error, /is in use/);
    } finally {
      server.close();
    }
  });

  test('down: the files of a killed exec are removed', async () => {
    const { stateRoot, name } = cluster();
    const folder = execFolder(join(stateRoot, name, 'nodes', 'node-1', 'state'));
    await endedBy('SIGKILL', ['exec', 'client', 'sh', '-c', 'echo ready; exec sleep 600'], /ready/);
    assert.ok(readdirSync(folder).length > 0);
    await cluster().down();
    started = undefined;
    assert.equal(existsSync(folder), false);
  });

  const up = (manifest: string, seconds: string) =>
    runFairlead(
      reserved.stateRoot,
      ['up', '--detach', '--name', cluster().name, '--timeout', seconds, '-f', '-'],
      { input: manifest },
    );

  /** Starts a command, waits until it has printed `shown` or until `isBusy`, and sends it a signal. Returns its status. */
  async function endedBy(
    signal: NodeJS.Signals,
    words: readonly [command: string, ...rest: string[]],
    shown: RegExp | null,
    isBusy: () => Promise<boolean> = async () => true,
  ): Promise<number | null> {
    const [command, ...rest] = words;
    const child = spawnFairlead(reserved.stateRoot, [command, '--name', cluster().name, ...rest]);
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    // A command that runs on holds the output open.
    const ended = once(child, 'exit');
    await eventually(async () => (shown === null || shown.test(text)) && (await isBusy()), Boolean);
    child.kill(signal);
    const [status] = (await ended) as [number | null];
    return status;
  }
});

import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { BrowserContext, Page } from 'playwright-core';
import { findProcesses } from '../src/cluster/processes.ts';
import type { TracedFlow } from '../src/cluster/trace-flow.ts';
import { readOptionalFile } from '../src/kernel/optional-file.ts';
import { createClient } from '../src/kube/client.ts';
import { readKubeconfig } from '../src/kube/kubeconfig.ts';
import { httpTransport } from '../src/kube/transport.ts';
import { RESOURCES } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { ModeComparison } from '../src/modes/comparison.ts';
import type { Refusal } from '../src/ui/view.ts';
import { findChromium } from './testing/browser.ts';
import { type Cluster, HELLO, type Load, runFairlead, startCluster } from './testing/cluster.ts';
import { type ClusterPage, openClusterPage } from './testing/cluster-page.ts';
import { typeLines, walkLesson } from './testing/lesson-walk.ts';

/** Tests the page of `fairlead ui` in a real browser, which has no network but that of the run. */

/** What the terminal needs is loaded with the first shell only, and has a test of its own. */
const MAX_WIRE_BYTES = 100_000;
const MANY_SERVICES = 1000;
const NAMESPACES = 20;
const CONCURRENCY = 8;
/** The page's rows and links have a limit, whatever the size of the cluster. */
const MAX_ELEMENTS = 4000;
const PATIENCE_MS = 60_000;
const BUNDLE = resolve(import.meta.dirname, '..', 'dist', 'fairlead.mjs');

/** Returns the processes that delay packets in a cluster. */
const delayingProcesses = (cluster: string): number[] =>
  findProcesses(cluster, [])
    .map(({ pid }) => pid)
    .filter((pid) => readOptionalFile(`/proc/${pid}/cmdline`)?.includes('\0link-delay\0'));

const chromium = findChromium();
const skip = chromium === null ? 'Chromium is not installed' : false;

describe('the page of the cluster', { skip }, () => {
  let cluster: Cluster;
  let command: ChildProcess;
  let url = '';
  let opened: ClusterPage;
  let context: BrowserContext;
  let page: Page;
  let load: Load | null = null;

  before(async () => {
    cluster = await startCluster(['--nodes', '2', '-f', HELLO]);
    opened = await openClusterPage(cluster, chromium ?? '');
    ({ url, command, context, page } = opened);
  });
  after(async () => {
    await load?.stop();
    await opened?.close();
    await cluster?.down();
  });

  const row = (name: string | RegExp) => page.locator('.row', { hasText: name }).first();
  const violations = () => opened.violations();

  test('an address without the token is refused', async () => {
    const { origin } = new URL(url);
    for (const path of ['/', '/page.js', '/api/events'])
      assert.equal((await fetch(origin + path)).status, 403);
  });

  test('a quiet cluster: its Services and endpoints, and how to send requests', async () => {
    await page.goto(url);
    await row(/^hello/).waitFor();
    assert.match(await row(/^hello/).innerText(), /3\/3 ready|ready/);
    await page.getByText('no connection was opened in the last 10 seconds').waitFor();
    await page.getByText(/exec default\/client -- fairlead request http:\/\/hello/).waitFor();
  });

  test('requests of a pod: the client, the rate, and the verdict in words', async () => {
    load = cluster.load('client', 'http://hello');
    await row(/^client/).waitFor();
    await page
      .locator('.edge', { hasText: /default\/client → default\/hello → hello-.*✓ answered/s })
      .first()
      .waitFor();
    assert.match(await row(/^hello/).innerText(), /\d\/s/);
    assert.ok((await page.locator('path.link.good').count()) > 2);
  });

  test('refused requests: the mark, the word and the reason', async () => {
    await cluster.apply(
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'typo', namespace: 'default' },
        spec: { selector: { app: 'nothing' }, ports: [{ port: 80 }] },
      }),
    );
    await row(/^typo/).waitFor();
    await eventually(
      async () => {
        await cluster.request('client', 'http://typo', '--count', '3');
        return await page
          .locator('.edge.bad', { hasText: /default\/typo.*✕ refused.*no.*endpoints/s })
          .count();
      },
      (count) => count > 0,
      PATIENCE_MS,
    );
    assert.ok((await page.locator('path.link.bad[stroke-dasharray]').count()) > 0);
  });

  test('search by keyboard; the link of a view shows the same in another window', async () => {
    await page.keyboard.press('/');
    await page.keyboard.type('hello');
    await row(/^typo/).waitFor({ state: 'detached' });
    await row(/^hello/).click();
    await page.getByRole('heading', { name: 'default/hello' }).waitFor();
    const other = await context.newPage();
    await other.goto(page.url());
    await other.getByRole('heading', { name: 'default/hello' }).waitFor();
    await other.close();
    await page.keyboard.press('Escape');
  });

  const PATHS = [
    {
      what: 'an answered connection: the devices, the rules that translate, and the way back',
      to: 'svc/default/hello',
      outcome: '✓ Answered after',
      stops: ['eth0', 'veth of default/client', 'nf_tables rules'],
      last: /SYN-ACK back, step (\d+) of \1/,
      facts: /:80 → 10\.244\./,
    },
    {
      what: 'a refused connection: who refused it, why, and the fix',
      to: 'svc/default/typo',
      outcome: '✕ Refused by node-',
      stops: ['eth0', 'veth of default/client'],
      last: /reset \(RST\) back, step (\d+) of \1/,
      facts: /selector app=nothing matches 0 pods.*fix: start pods with these labels/s,
    },
  ];
  for (const { what, to, outcome, stops, last, facts } of PATHS) {
    test(`the path of a packet from a link: ${what}`, async () => {
      await page.goto(`${url}#path?from=default%2Fclient&to=${encodeURIComponent(to)}`);
      await page.getByText(outcome).waitFor();
      for (const stop of stops) await page.getByRole('button', { name: stop, exact: true }).first().waitFor();
      await page.getByText(last).waitFor();
      assert.match(await page.locator('main').innerText(), facts);
      assert.ok((await page.locator('.way path.back').count()) > 0);
      assert.deepEqual(await violations(), []);
    });
  }

  test('the path: a choice of the rules shows the object that translates and how to print it', async () => {
    await page.goto(`${url}#path?from=default%2Fclient&to=svc%2Fdefault%2Fhello`);
    await page.getByRole('button', { name: 'nf_tables rules' }).click();
    const details = await page.locator('.hop').innerText();
    assert.match(details, /The destination changed from 10\.96\.[\d.]+:80 to 10\.244\.[\d.]+:8080 by:/);
    assert.match(
      details,
      /its text: FAIRLEAD_CLUSTER=\w+ \S+ exec node\/node-\d -- nft list map ip fairlead services/,
    );
    await eventually(
      () => page.locator('.hop').innerText(),
      (text) =>
        /# nft get element ip fairlead services \{ 10\.96[\s\S]*elements = \{ 10\.96[\s\S]*chain from-pod \{/.test(
          text,
        ),
      PATIENCE_MS,
    );
    assert.deepEqual(await violations(), []);
  });

  test('the path: a pod that does not exist is named, with a fix', async () => {
    await page.getByLabel('From').fill('default/nothing');
    await page.getByRole('button', { name: 'Send a packet' }).click();
    await page.locator('.card .bad', { hasText: 'default/nothing' }).waitFor();
    await page.goto(`${url}#map`);
    await row(/^hello/).waitFor();
  });

  test('a fault by button: a silent pod; the path shows where its packets end; the command lists it; undone by button', async () => {
    const [pod] = await cluster.pods('app=hello');
    assert.ok(pod);
    await page.goto(`${url}#faults`);
    await page.getByText('None: the cluster is as it was').waitFor();
    assert.deepEqual(await violations(), []);
    const form = page.getByRole('form', { name: 'Silence a pod' });
    await form.getByLabel('Pod').selectOption(`default/${pod.name}`);
    await form.getByRole('button').click();
    await page.getByText('✕ silent').waitFor();
    assert.match((await cluster.fairlead('fault')).out, new RegExp(`silent +default/${pod.name}`));
    const explained = await cluster.fairlead('explain', 'client', `pod/default/${pod.name}:8080`);
    assert.match(
      explained.out,
      /^DROPPED: [\s\S]*because a planted fault silences pod [\s\S]*fix: fairlead fault undo/,
    );
    await page.goto(`${url}#path?from=default%2Fclient&to=pod%2Fdefault%2F${pod.name}%3A8080`);
    await page.getByText(`No answer: last seen at pod default/${pod.name}`).waitFor();
    await page.goto(`${url}#faults`);
    await page.getByRole('button', { name: 'Undo all' }).click();
    await page.getByText(`Undone: silent default/${pod.name}`).waitFor();
    assert.equal((await cluster.fairlead('fault')).out, 'no faults\n');
    await page.goto(`${url}#path?from=default%2Fclient&to=pod%2Fdefault%2F${pod.name}%3A8080`);
    await page.getByText('✓ Answered after').waitFor();
  });

  const FAULTS: readonly {
    kind: string;
    shows: () => Promise<unknown>;
    whole: unknown;
    broken: unknown;
    /** What \`explain\` calls dropped, with the fault as the reason. */
    explained: readonly (readonly [from: string, to: string])[];
  }[] = [
    {
      kind: 'cut',
      shows: async () => {
        const address = cluster.state().nodes.find(({ name }) => name === 'node-2')?.addresses[0];
        const { failures } = await cluster.request(
          'outside',
          `http://${address}:30080`,
          '--count',
          '1',
          '--timeout',
          '2000',
        );
        return Object.keys(failures).map((text) => text.split(':')[0]);
      },
      whole: [],
      broken: ['no answer within 2000 ms'],
      // The agent of the cut node cannot reach the API server.
      explained: [
        ['outside', 'node/node-2:30080'],
        ['node/node-2', 'node/node-1:30080'],
      ],
    },
    {
      kind: 'drain',
      shows: async () => {
        const pods = await cluster.pods('app=hello');
        const node = JSON.parse(await cluster.ask('get', 'node', 'node-2', '-o', 'json'));
        return [node.spec.unschedulable === true, pods.some((pod) => pod.node === 'node-2')];
      },
      whole: [false, true],
      broken: [true, false],
      explained: [],
    },
  ];
  for (const { kind, shows, whole, broken, explained } of FAULTS) {
    test(`fault ${kind}: its effect, the list, and undo`, async () => {
      const planted = await cluster.fairlead('fault', kind, 'node-2');
      assert.equal(planted.status, 0, planted.error);
      await eventually(shows, (seen) => isDeepStrictEqual(seen, broken), PATIENCE_MS);
      assert.match((await cluster.fairlead('fault')).out, new RegExp(`${kind} +node-2`));
      for (const [from, to] of explained) {
        const { out } = await cluster.fairlead('explain', from, to);
        assert.match(out, /^DROPPED: [\s\S]*because a planted fault cuts the uplink of node-2/, from);
      }
      assert.equal((await cluster.fairlead('fault', 'undo')).out, `undone: ${kind} node-2\n`);
      if (kind === 'drain') await cluster.ask('rollout', 'restart', 'deployment/hello');
      await eventually(shows, (seen) => isDeepStrictEqual(seen, whole), PATIENCE_MS);
    });
  }

  test('fault slow: the delay of each way, the list, undo, and the end of its process', async () => {
    const answeredAfterMs = async () => {
      const { out } = await cluster.fairlead('trace', 'outside', 'node/node-2:30080', '-o', 'json');
      return Number(JSON.parse(out).trace.answeredAfterMs);
    };
    const slow = () => cluster.fairlead('fault', 'slow', 'node-2', '--delay', '300');
    assert.equal((await slow()).out, 'slow node-2: packets that leave or reach the node are delayed\n');
    assert.match((await cluster.fairlead('fault')).out, /slow +node-2/);
    assert.ok((await answeredAfterMs()) >= 600, 'a request and its answer wait 300 ms each');
    assert.equal((await cluster.fairlead('fault', 'undo')).out, 'undone: slow node-2\n');
    await eventually(answeredAfterMs, (ms) => ms < 600, PATIENCE_MS);
    await slow();
    for (const pid of delayingProcesses(cluster.name)) process.kill(pid, 'SIGKILL');
    await eventually(answeredAfterMs, (ms) => ms < 600, PATIENCE_MS);
    assert.equal((await cluster.fairlead('fault')).out, 'no faults\n');
  });

  // Each has objects of its own, so that they can be walked at the same time.
  test('lessons in the terminal: what they print, and nothing else, leads to their end', {
    concurrency: 3,
  }, async (t) => {
    await Promise.all(
      ['pods', 'names', 'policies'].map((lesson) =>
        t.test(lesson, async () => {
          const { log, isFinished } = await walkLesson(cluster, lesson);
          assert.ok(isFinished, log);
          assert.match(log, /^ {2}because /m, 'explain names the reason of the fault');
        }),
      ),
    );
    const { out } = await cluster.fairlead('learn');
    assert.match(out, /^pods +finished.*\n[\s\S]*^names +finished.*\n[\s\S]*^policies +finished/m);
  });

  test('a lesson in the page: the commands that it shows, the fault, and the end', async () => {
    await page.goto(`${url}#lessons`);
    await page.getByRole('button', { name: "A Service's address is on no interface" }).waitFor();
    assert.deepEqual(await violations(), []);
    await page.getByRole('button', { name: "A Service's address is on no interface" }).click();
    await page.getByText('Step 1 of 3: Create a Service').waitFor();
    assert.deepEqual(await violations(), []);
    const shown = async (index: number) => (await page.locator('.typed pre').nth(index).textContent()) ?? '';
    await typeLines(cluster, await shown(0));
    await page.getByText('Step 2 of 3: Look for its address').waitFor();
    await page.getByRole('button', { name: 'I have seen it' }).click();
    await page.getByText('Step 3 of 3: Find the fault: connections are refused').waitFor();
    assert.match(await typeLines(cluster, await shown(0)), /because nothing listens on port 9090\/TCP/);
    await page.getByText('How to repair it').click();
    await typeLines(cluster, await shown(1));
    await page.getByText('✓ You have finished this lesson.').waitFor();
    assert.deepEqual(await violations(), []);
    await page.getByRole('button', { name: 'Choose another' }).click();
    await page.getByRole('button', { name: /A Service's address.*✓ finished/s }).waitFor();
  });

  test('learn --reset leaves nothing', async () => {
    const { status, error } = await cluster.fairlead('learn', '--reset');
    assert.equal(status, 0, error);
    assert.equal((await cluster.kubectl('get', 'namespace', 'learn')).status, 1);
    assert.match((await cluster.fairlead('learn')).out, /^pods +- /m);
  });

  const column = (mode: string) => page.getByRole('region', { name: `${mode} mode` });
  /** What each mode has for the Service hello, as its own tools print it. */
  const MODE_OBJECTS = [
    ['nftables', /nft list map ip fairlead services .*\. tcp \. 80 comment "default\/hello:http" : goto/s],
    ['ebpf', /bpftool map dump name fl_frontends .*:80\/TCP: pods 3 slots, node 3 slots/s],
    ['iptables', /iptables-save -t nat/],
    ['ipvs', /ipvsadm-save -n virtual servers: 4\s*-A -t 10\.96\.[\d.]+:80 -s rr/],
    ['userspace', /tcp [\d.]+:PORT of pool default\/hello:http/],
  ] as const;

  test('one Service in all modes, side by side, without a switch', async () => {
    await page.goto(`${url}#modes?service=default%2Fhello`);
    for (const [mode, objects] of MODE_OBJECTS) {
      await column(mode).getByText('First packet').waitFor();
      assert.match(await column(mode).innerText(), objects, mode);
    }
    await column('nftables').getByText('✓ in use').waitFor();
    await column('nftables').getByText('✓ the kernel holds exactly this').waitFor();
    await column('userspace').getByText('What this mode would write').waitFor();
    if (!existsSync('/proc/net/ip_vs')) await column('ipvs').getByText('This node cannot run it').waitFor();
    assert.deepEqual(await violations(), []);
    const shown = (await column('iptables').innerText()).match(/(?<=^rules: )\d+/m)?.[0];
    const compared = await cluster.fairlead('explain', 'svc/hello', '--modes', '-o', 'json');
    const { mode, modes } = JSON.parse(compared.out) as ModeComparison;
    assert.equal(mode, 'nftables');
    const iptables = modes.find((one) => one.mode === 'iptables');
    assert.deepEqual(iptables?.counts, [{ kind: 'rules', count: Number(shown) }]);
    assert.match((await cluster.fairlead('status')).out, /node-1 +nftables/);
  });

  test('a switch under traffic: the mode in use is compared with the kernel', async () => {
    await page.getByRole('button', { name: 'Switch to userspace' }).click();
    await column('userspace').getByText('✓ in use').waitFor();
    await column('userspace').getByText('✓ the kernel holds exactly this').waitFor();
    await column('userspace')
      .getByText(/^tcp [\d.]+:\d+ of pool default\/hello:http/)
      .waitFor();
    await column('userspace').getByText("The server sees the node's address", { exact: false }).waitFor();
    await column('nftables').getByText('What this mode would write').waitFor();
    await page.getByRole('button', { name: 'Switch to nftables' }).click();
    await column('nftables').getByText('✓ in use').waitFor();
    assert.match((await cluster.fairlead('status')).out, /node-1 +nftables/);
    assert.deepEqual(await violations(), []);
  });

  test('explain --modes asks an agent by its state folder, as on a node of a real cluster', async () => {
    const stateDir = join(cluster.stateRoot, cluster.name, 'nodes', 'node-2', 'state');
    const here = await runFairlead(cluster.stateRoot, [
      'explain',
      'svc/hello',
      '--modes',
      '--agent',
      stateDir,
    ]);
    const there = await cluster.fairlead('explain', 'svc/hello', '--modes', '--node', 'node-2');
    assert.equal(here.status, 0, here.error);
    assert.equal(here.out, there.out);
  });

  const REFUSED_COMPARISONS = [
    { words: ['svc/helo'], error: /no such Service: default\/helo\n[\s\S]*did you mean svc\/default\/hello/ },
    { words: ['svc/other/hello'], error: /no such Service[\s\S]*did you mean svc\/default\/hello/ },
    { words: ['svc/hello', '--node', 'node-9'], error: /no such node: node-9\n[\s\S]*node-1, node-2/ },
    { words: ['client', 'svc/hello'], error: /--modes takes one argument/ },
    {
      words: ['svc/hello', '--agent', '/nowhere'],
      error: /the agent of this machine is not running[\s\S]*stateDir/,
    },
    { words: ['svc/hello', '--agent', '/x', '--node', 'node-1'], error: /use one of --agent and --node/ },
  ];
  for (const { words, error } of REFUSED_COMPARISONS) {
    test(`explain --modes ${words.join(' ')} is refused`, async () => {
      const refused = await cluster.fairlead('explain', '--modes', ...words);
      assert.notEqual(refused.status, 0);
      assert.match(refused.error, error);
    });
  }

  const REFUSED_FAULTS = [
    { words: ['silent', 'nothing'], error: /no such running pod: default\/nothing/ },
    { words: ['cut', 'node-9'], error: /no such node: node-9\n[\s\S]*try: use one of node-1, node-2/ },
    { words: ['cut'], error: /missing TARGET/ },
  ];
  for (const { words, error } of REFUSED_FAULTS) {
    test(`fault ${words.join(' ')} is refused`, async () => {
      const refused = await cluster.fairlead('fault', ...words);
      assert.notEqual(refused.status, 0);
      assert.match(refused.error, error);
    });
  }

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`accessibility in ${colorScheme}: axe finds nothing`, async () => {
      await page.goto(`${url}#map`);
      await row(/^hello/).waitFor();
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      assert.deepEqual(await violations(), []);
    });
  }

  test('with reduced motion nothing moves', async () => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await page.reload();
    await row(/^hello/).waitFor();
    assert.equal(await page.locator('canvas').count(), 0);
  });

  test('1,000 Services: grouped by namespace, within a fixed number of elements; a namespace opens', async () => {
    const transport = httpTransport(readKubeconfig(cluster.kubeconfig));
    const client = createClient(transport, 'ui-test');
    const createAll = async (count: number, create: (i: number) => Promise<unknown>) => {
      let next = 0;
      const work = async () => {
        while (next < count) await create(next++);
      };
      await Promise.all(Array.from({ length: CONCURRENCY }, work));
    };
    await createAll(NAMESPACES, (i) =>
      client.create(RESOURCES.namespaces, { metadata: { name: `team-${i}` } }),
    );
    await createAll(MANY_SERVICES, (i) =>
      client.create(RESOURCES.services, {
        metadata: { name: `many-${i}`, namespace: `team-${i % NAMESPACES}` },
        spec: { selector: { app: `many-${i}` }, ports: [{ port: 80 }] },
      }),
    );
    transport.close();
    await page.goto(`${url}#map`);
    await row(/^team-7\s*50 Services/).waitFor();
    assert.ok((await page.locator('*').count()) < MAX_ELEMENTS);
    await row(/^team-7/).click();
    await row(/^many-7/).waitFor();
    await page.getByText('10 quiet Services are not shown').waitFor();
  });

  test('the page asks its own server only, and nothing is wrong in it', () => {
    assert.deepEqual(opened.foreignRequests(), []);
    // The browser logs the refused path above.
    const unexpected = opened.problems.filter((text) => !/status of 400/.test(text));
    assert.deepEqual(unexpected, []);
  });

  test('at most 100 kB over the wire without a shell', async () => {
    const { files, bytes } = await opened.wireSize();
    assert.ok(files.length >= 3 && bytes <= MAX_WIRE_BYTES, `${files.join(' ')}: ${bytes} bytes`);
  });

  test('without root: a user with the kubeconfig of the cluster can trace, and plant and undo faults', async (context) => {
    const unprivileged = ['--reuid=65534', '--regid=65534', '--clear-groups', '--'];
    if (
      spawnSync('setpriv', [...unprivileged, 'test', '-r', BUNDLE, '-a', '-x', process.execPath]).status !== 0
    ) {
      context.skip('other users cannot read this folder');
      return;
    }
    const folder = mkdtempSync(join(tmpdir(), 'flt-ui-'));
    const kubeconfig = join(folder, 'config');
    writeFileSync(kubeconfig, readFileSync(cluster.kubeconfig));
    for (const path of [folder, kubeconfig]) chmodSync(path, 0o755);
    const env = { ...process.env, FAIRLEAD_STATE: cluster.stateRoot, KUBECONFIG: kubeconfig, HOME: folder };
    const user = spawn('setpriv', [...unprivileged, process.execPath, BUNDLE, 'ui', '--name', cluster.name], {
      env,
    });
    try {
      const [line] = await once(user.stdout, 'data');
      const api = `${String(line).trim()}api/`;
      const ask = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
        const answer = await fetch(api + path, { method, ...(body ? { body: JSON.stringify(body) } : {}) });
        return (await answer.json()) as T;
      };
      const traced = await ask<TracedFlow>('POST', 'trace', { from: 'client', to: 'svc/hello' });
      assert.equal(traced.trace?.answer.kind, 'answered');
      const question = { namespace: 'default', name: 'hello' };
      assert.equal((await ask<ModeComparison>('POST', 'modes', question)).mode, 'nftables');
      const [pod] = await cluster.pods('app=hello');
      const fault = { kind: 'silent', target: `default/${pod?.name}` };
      assert.deepEqual(await ask('POST', 'faults', fault), { fault, warnings: [] });
      assert.deepEqual(await ask('GET', 'faults'), [fault]);
      assert.deepEqual(await ask('DELETE', 'faults'), [fault]);
      assert.match(
        (await ask<Refusal>('POST', 'faults', { kind: 'melt', target: 'x' })).message,
        /kind must be one of silent/,
      );
      for (const [words, out] of [
        [['trace', 'client', 'svc/hello'], /ANSWERED/i],
        [['fault', 'silent', pod?.name ?? ''], /^silent default\/hello-/],
        [['fault'], /silent +default\/hello-/],
        [['fault', 'undo'], /^undone: silent /],
      ] as const) {
        const program = [process.execPath, BUNDLE, ...words, '--name', cluster.name];
        const ran = spawnSync('setpriv', [...unprivileged, ...program], { env, encoding: 'utf8' });
        assert.match(ran.stdout, out, ran.stderr);
      }
    } finally {
      user.kill();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  test('when the command ends, the page says so', async () => {
    const ended = once(command, 'exit');
    command.kill('SIGINT');
    await page.getByText('The connection to “fairlead ui” is lost').waitFor();
    assert.deepEqual(await ended, [0, null]);
  });
});

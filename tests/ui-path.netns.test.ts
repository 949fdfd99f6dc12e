import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { before, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Page } from 'playwright-core';
import { findProcesses } from '../src/cluster/processes.ts';
import type { TracedFlow } from '../src/cluster/trace-flow.ts';
import { readOptionalFile } from '../src/kernel/optional-file.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import type { ModeComparison } from '../src/modes/comparison.ts';
import type { Refusal } from '../src/ui/view.ts';
import { HELLO } from './testing/cluster.ts';
import { describePage } from './testing/page-suite.ts';

const PATIENCE_MS = 60_000;
const BUNDLE = resolve(import.meta.dirname, '..', 'dist', 'fairlead.mjs');

/** Returns the processes that delay packets in a cluster. */
const delayingProcesses = (cluster: string): number[] =>
  findProcesses(cluster, [])
    .map(({ pid }) => pid)
    .filter((pid) => readOptionalFile(`/proc/${pid}/cmdline`)?.includes('\0link-delay\0'));

/** Returns the stops of the picture, as they are drawn. */
const stationsIn = (page: Page): Promise<{ kind: string; label: string; text: string }[]> =>
  page.locator('[data-stop]').evaluateAll((stops) =>
    stops.map((stop) => {
      const [, place = '', kind = '', label = ''] =
        /^(.*) \| (\w+) (.*)$/.exec(stop.dataset['stop'] ?? '') ?? [];
      return { kind, label, text: `${place}: ${label}` };
    }),
  );

/** Returns what lines of the picture cross, and the stops whose text does not fit. */
async function crossedIn(page: Page): Promise<string[]> {
  // The picture follows the width in the next frame.
  await page.evaluate(
    'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
  );
  return (await page.evaluate(`(() => {
    const areas = (selector) => [...document.querySelectorAll(selector)].map((one) => ({
      name: one.dataset.stop ?? one.textContent, area: one.getBoundingClientRect(),
    }));
    const isIn = (x, y, { left, right, top, bottom }) =>
      x > left + 1.5 && x < right - 1.5 && y > top + 1.5 && y < bottom - 1.5;
    const stops = areas('[data-stop]');
    const [boxes, titles] = [areas('.box'), areas('.box h3')];
    const crossed = [...document.querySelectorAll('[data-stop]')]
      .filter((one) => one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1)
      .map((one) => one.dataset.stop + ' is cut');
    const origin = document.querySelector('.way').getBoundingClientRect();
    for (const path of document.querySelectorAll('.way path')) {
      const entered = new Set();
      for (let at = 0; at <= path.getTotalLength(); at += 3) {
        const point = path.getPointAtLength(at);
        const [x, y] = [point.x + origin.left, point.y + origin.top];
        for (const { name, area } of [...stops, ...titles]) if (isIn(x, y, area)) crossed.push(name);
        for (const { name, area } of boxes) if (isIn(x, y, area)) entered.add(name);
      }
      if (entered.size > 2) crossed.push([...entered].join());
    }
    return [...new Set(crossed)];
  })()`)) as string[];
}

describePage('paths and faults in the page', ['--nodes', '2', '-f', HELLO], (scene) => {
  before(() =>
    scene.cluster.apply(
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'typo', namespace: 'default' },
        spec: { selector: { app: 'nothing' }, ports: [{ port: 80 }] },
      }),
    ),
  );

  const PATHS = [
    {
      what: 'an answered connection: the devices, the rules that translate, and the way back',
      to: 'svc/default/hello',
      outcome: '✓ Delivered after',
      stops: ['eth0', 'veth of default/client', 'nf_tables rules'],
      last: /SYN-ACK to the client, step (\d+) of \1/,
      facts: /:80 → 10\.244\./,
    },
    {
      what: 'a refused connection: who refused it, why, and the fix',
      to: 'svc/default/typo',
      outcome: '✕ Rejected by node-',
      stops: ['eth0', 'veth of default/client'],
      last: /reset \(RST\) to the client, step (\d+) of \1/,
      facts: /selector app=nothing matches 0 pods.*fix: start pods with these labels/s,
    },
  ];
  for (const { what, to, outcome, stops, last, facts } of PATHS) {
    test(`the path of a packet from a link: ${what}`, async () => {
      await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=${encodeURIComponent(to)}`);
      await scene.page.getByText(outcome).waitFor();
      for (const stop of stops)
        await scene.page.getByRole('button', { name: stop, exact: true }).first().waitFor();
      await scene.page.getByText(last).waitFor();
      assert.match(await scene.page.locator('main').innerText(), facts);
      assert.ok((await scene.page.locator('.way path.back').count()) > 0);
      await scene.expectAccessible();
    });
  }

  /** What translates in each mode, as the picture names it. */
  const MECHANISMS = {
    iptables: [/^iptables rules$/],
    userspace: [/^nf_tables rules$/, /^fairlead proxy \(process \d+\), listener tcp [\d.]+:\d+$/],
    ebpf: [/^BPF program$/],
    ...(existsSync('/proc/net/ip_vs') ? { ipvs: [/^IPVS$/] } : {}),
    nftables: [/^nf_tables rules$/],
  };
  const PACKETS = ['SYN to the server', 'SYN-ACK to the client'];
  const PROXY_PACKETS = [
    ...['SYN to the proxy', 'SYN-ACK to the client', 'SYN to the server', 'SYN-ACK to the proxy'],
  ];
  for (const [mode, mechanisms] of Object.entries(MECHANISMS)) {
    test(`the picture in ${mode} mode: the stations of the trace, and no line through a box`, async () => {
      const { status, error } = await scene.cluster.fairlead('mode', mode);
      assert.equal(status, 0, error);
      await scene.page.emulateMedia({ reducedMotion: 'reduce' });
      await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=svc%2Fdefault%2Fhello`);
      const answered = scene.page.waitForResponse((response) => response.url().endsWith('/api/trace'));
      await scene.page.reload();
      const { trace } = (await (await answered).json()) as TracedFlow;
      const passed = new Set(
        trace?.legs.flatMap(({ hops }) => hops.map(({ place, deviceText }) => `${place}: ${deviceText}`)),
      );
      await scene.page.locator('[data-stop]').first().waitFor();
      const drawn = await stationsIn(scene.page);
      const devices = drawn.filter(({ kind }) => kind === 'device').map(({ text }) => text);
      assert.deepEqual(new Set(devices), passed);
      assert.equal(devices.length, passed.size, 'each once');
      for (const one of mechanisms)
        assert.equal(drawn.filter(({ label }) => one.test(label)).length, 1, `${one}`);
      const next = scene.page.getByRole('button', { name: 'Next', exact: true });
      const titles = new Set<string>();
      await scene.page.setViewportSize({ width: 400, height: 800 });
      for (const details of await scene.page.locator('.explain-steps summary').all()) await details.click();
      const wide: string[] = [];
      for (let isLast = false; !isLast; isLast = await next.isDisabled()) {
        if (titles.size > 0) await next.click();
        const title = await scene.page.locator('.card h2', { hasText: ', step ' }).innerText();
        titles.add(title.replace(/,.*/, ''));
        await eventually(
          () => scene.page.getByText('Reading it…').count(),
          (count) => count === 0,
        );
        if (Number(await scene.page.evaluate('document.documentElement.scrollWidth')) > 400) wide.push(title);
      }
      assert.deepEqual(wide, [], 'no step is wider than the window');
      assert.deepEqual([...titles], mode === 'userspace' ? PROXY_PACKETS : PACKETS);
      for (const width of [400, 800, 1280, 1920]) {
        await scene.page.setViewportSize({ width, height: 800 });
        assert.deepEqual(await crossedIn(scene.page), [], `${width} pixels`);
      }
      await scene.page.setViewportSize({ width: 1280, height: 800 });
      await scene.expectAccessible();
      await scene.page.emulateMedia({ reducedMotion: null });
    });
  }

  test('the path of the question to a name server before the packet', async () => {
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=hello`);
    await scene.page.getByText('✓ Delivered after').waitFor();
    const choice = scene.page.getByLabel('Packet in the picture');
    await choice.selectOption({ label: 'DNS: hello.default.svc.cluster.local A' });
    await scene.page.getByText(/DNS answer to the client, step (\d+) of \1/).waitFor();
    await scene.expectAccessible();
    await choice.selectOption({ label: 'the packet itself' });
    await scene.page.getByText(/SYN-ACK to the client, step (\d+) of \1/).waitFor();
  });

  test('the path: a choice of the rules shows the object that translates and how to print it', async () => {
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=svc%2Fdefault%2Fhello`);
    await scene.page.getByRole('button', { name: 'nf_tables rules' }).click();
    const details = await scene.page.locator('.hop').innerText();
    assert.match(details, /The destination changed from 10\.96\.[\d.]+:80 to 10\.244\.[\d.]+:8080 by:/);
    assert.match(
      details,
      /its text: FAIRLEAD_CLUSTER=\w+ \S+ exec node\/node-\d -- nft list map ip fairlead services/,
    );
    await eventually(
      () => scene.page.locator('.hop').innerText(),
      (text) =>
        /# nft get element ip fairlead services \{ 10\.96[\s\S]*elements = \{ 10\.96[\s\S]*chain from-pod \{/.test(
          text,
        ),
      PATIENCE_MS,
    );
    await scene.expectAccessible();
  });

  test('the path in eBPF mode: the map entries of the program at the socket, as the kernel has them', async () => {
    const { error, status } = await scene.cluster.fairlead('mode', 'ebpf');
    assert.equal(status, 0, error);
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=svc%2Fdefault%2Fhello`);
    // Also if it shows this path already.
    await scene.page.reload();
    await scene.page.getByRole('button', { name: 'BPF program' }).click();
    await eventually(
      () => scene.page.locator('.hop').innerText(),
      (text) =>
        /# bpftool map lookup pinned \S+map-frontends key hex( \w\w){20}\s+key: address 10\.96\.[\d.]+, port 80, protocol TCP\s+value: id \d+, .*routes\[POD\]: action FORWARD, first \d+, count 3/s.test(
          text,
        ) &&
        /# bpftool map dump pinned \S+map-endpoints(\s+key \d+: address 10\.244[\d.]+, port 8080,.*){3}/s.test(
          text,
        ),
      PATIENCE_MS,
    );
    await scene.expectAccessible();
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=svc%2Fdefault%2Ftypo`);
    await scene.page.getByText('✕ Rejected by the client’s own socket').waitFor();
    // Without a packet there is no hop to choose.
    await scene.page.getByText('its text on node-').first().click();
    await scene.page.getByText(/routes\[POD\]: action REFUSE, first 0, count 0/).waitFor();
    await scene.expectAccessible();
    assert.equal((await scene.cluster.fairlead('mode', 'nftables')).status, 0);
  });

  test('the path to a name: the questions to the name server before it', async () => {
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=hello`);
    const before = scene.page.getByRole('region', { name: 'DNS before it' });
    await before.getByText(/✓ hello\.default\.svc\.cluster\.local A: 10\.96\./).waitFor();
    assert.match(
      await before.innerText(),
      /after [\d.]+ ms from 10\.96\.0\.10, through eth0 \(pod default\/client\)/,
    );
    await scene.expectAccessible();
  });

  test('the path: a pod that does not exist is named, with a fix', async () => {
    await scene.page.getByLabel('From').fill('default/nothing');
    await scene.page.getByRole('button', { name: 'Send a packet' }).click();
    await scene.page.locator('.card .bad', { hasText: 'default/nothing' }).waitFor();
    await scene.page.goto(`${scene.url}#map`);
    await scene.row(/^hello/).waitFor();
  });

  test('a fault by button: a silent pod; the path shows where its packets end; the command lists it; undone by button', async () => {
    const [pod] = await scene.cluster.pods('app=hello');
    assert.ok(pod);
    await scene.page.goto(`${scene.url}#faults`);
    await scene.page.getByText('None: the cluster is as it was').waitFor();
    await scene.expectAccessible();
    const form = scene.page.getByRole('form', { name: 'Silence a pod' });
    await form.getByLabel('Pod').selectOption(`default/${pod.name}`);
    await form.getByRole('button').click();
    await scene.page.getByText('✕ silent').waitFor();
    assert.match((await scene.cluster.fairlead('fault')).out, new RegExp(`silent +default/${pod.name}`));
    const explained = await scene.cluster.fairlead('explain', 'client', `pod/default/${pod.name}:8080`);
    assert.match(
      explained.out,
      /^DROPPED: [\s\S]*because a planted fault silences pod [\s\S]*fix: fairlead fault undo/,
    );
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=pod%2Fdefault%2F${pod.name}%3A8080`);
    await scene.page.getByText(`No answer: last seen at pod default/${pod.name}`).waitFor();
    await scene.page.goto(`${scene.url}#faults`);
    await scene.page.getByRole('button', { name: 'Undo all' }).click();
    await scene.page.getByText(`Undone: silent default/${pod.name}`).waitFor();
    assert.equal((await scene.cluster.fairlead('fault')).out, 'no faults\n');
    await scene.page.goto(`${scene.url}#path?from=default%2Fclient&to=pod%2Fdefault%2F${pod.name}%3A8080`);
    await scene.page.getByText('✓ Delivered after').waitFor();
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
        const address = scene.cluster.state().nodes.find(({ name }) => name === 'node-2')?.addresses[0];
        const { failures } = await scene.cluster.request(
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
        const pods = await scene.cluster.pods('app=hello');
        const node = JSON.parse(await scene.cluster.ask('get', 'node', 'node-2', '-o', 'json'));
        return [node.spec.unschedulable === true, pods.some((pod) => pod.node === 'node-2')];
      },
      whole: [false, true],
      broken: [true, false],
      explained: [],
    },
  ];
  for (const { kind, shows, whole, broken, explained } of FAULTS) {
    test(`fault ${kind}: its effect, the list, and undo`, async () => {
      const planted = await scene.cluster.fairlead('fault', kind, 'node-2');
      assert.equal(planted.status, 0, planted.error);
      await eventually(shows, (seen) => isDeepStrictEqual(seen, broken), PATIENCE_MS);
      assert.match((await scene.cluster.fairlead('fault')).out, new RegExp(`${kind} +node-2`));
      for (const [from, to] of explained) {
        const { out } = await scene.cluster.fairlead('explain', from, to);
        assert.match(out, /^DROPPED: [\s\S]*because a planted fault cuts the uplink of node-2/, from);
      }
      assert.equal((await scene.cluster.fairlead('fault', 'undo')).out, `undone: ${kind} node-2\n`);
      if (kind === 'drain') await scene.cluster.ask('rollout', 'restart', 'deployment/hello');
      await eventually(shows, (seen) => isDeepStrictEqual(seen, whole), PATIENCE_MS);
    });
  }

  test('fault slow: the delay of each way, the list, undo, and the end of its process', async () => {
    const answeredAfterMs = async () => {
      const { out } = await scene.cluster.fairlead('trace', 'outside', 'node/node-2:30080', '-o', 'json');
      return Number(JSON.parse(out).trace.answeredAfterMs);
    };
    const slow = () => scene.cluster.fairlead('fault', 'slow', 'node-2', '--delay', '300');
    assert.equal((await slow()).out, 'slow node-2: packets that leave or reach the node are delayed\n');
    assert.match((await scene.cluster.fairlead('fault')).out, /slow +node-2/);
    assert.ok((await answeredAfterMs()) >= 600, 'a request and its answer wait 300 ms each');
    assert.equal((await scene.cluster.fairlead('fault', 'undo')).out, 'undone: slow node-2\n');
    await eventually(answeredAfterMs, (ms) => ms < 600, PATIENCE_MS);
    await slow();
    for (const pid of delayingProcesses(scene.cluster.name)) process.kill(pid, 'SIGKILL');
    await eventually(answeredAfterMs, (ms) => ms < 600, PATIENCE_MS);
    assert.equal((await scene.cluster.fairlead('fault')).out, 'no faults\n');
  });

  const REFUSED_FAULTS = [
    { words: ['silent', 'nothing'], error: /no such running pod: default\/nothing/ },
    { words: ['cut', 'node-9'], error: /no such node: node-9\n[\s\S]*try: use one of node-1, node-2/ },
    { words: ['cut'], error: /missing TARGET/ },
  ];
  for (const { words, error } of REFUSED_FAULTS) {
    test(`fault ${words.join(' ')} is refused`, async () => {
      const refused = await scene.cluster.fairlead('fault', ...words);
      assert.notEqual(refused.status, 0);
      assert.match(refused.error, error);
    });
  }

  test('the page asks its own server only, and nothing is wrong in it', () =>
    // The browser logs the refused path above.
    scene.expectSound(/status of 400/));

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
    writeFileSync(kubeconfig, readFileSync(scene.cluster.kubeconfig));
    for (const path of [folder, kubeconfig]) chmodSync(path, 0o755);
    const env = {
      ...process.env,
      FAIRLEAD_STATE: scene.cluster.stateRoot,
      KUBECONFIG: kubeconfig,
      HOME: folder,
    };
    const user = spawn(
      'setpriv',
      [...unprivileged, process.execPath, BUNDLE, 'ui', '--name', scene.cluster.name],
      {
        env,
      },
    );
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
      const [pod] = await scene.cluster.pods('app=hello');
      const fault = { kind: 'silent', target: `default/${pod?.name}` };
      assert.deepEqual(await ask('POST', 'faults', fault), { fault, warnings: [] });
      assert.deepEqual(await ask('GET', 'faults'), [fault]);
      assert.deepEqual(await ask('DELETE', 'faults'), [fault]);
      assert.match(
        (await ask<Refusal>('POST', 'faults', { kind: 'melt', target: 'x' })).message,
        /kind must be one of silent/,
      );
      for (const [words, out] of [
        [['trace', 'client', 'svc/hello'], /DELIVERED/i],
        [['fault', 'silent', pod?.name ?? ''], /^silent default\/hello-/],
        [['fault'], /silent +default\/hello-/],
        [['fault', 'undo'], /^undone: silent /],
      ] as const) {
        const program = [process.execPath, BUNDLE, ...words, '--name', scene.cluster.name];
        const ran = spawnSync('setpriv', [...unprivileged, ...program], { env, encoding: 'utf8' });
        assert.match(ran.stdout, out, ran.stderr);
      }
    } finally {
      user.kill();
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

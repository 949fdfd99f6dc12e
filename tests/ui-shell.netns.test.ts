import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { WebSocket } from 'ws';
import { eventually } from '../src/lib/testing/eventually.ts';
import { findChromium } from './testing/browser.ts';
import { type Cluster, HELLO, startCluster } from './testing/cluster.ts';
import { type ClusterPage, openClusterPage } from './testing/cluster-page.ts';

/** Tests the shell in the page of `fairlead ui` in a real browser. */

const PATIENCE_MS = 60_000;
const MAX_WIRE_BYTES = 300_000;
/** The sleeping process by which a shell is found in its pod. */
const NAP = 'sleep 86399';

const chromium = findChromium();
const skip = chromium === null ? 'Chromium is not installed' : false;

describe('a shell in the page', { skip }, () => {
  let cluster: Cluster;
  let opened: ClusterPage;
  let page: Page;
  let url = '';

  before(async () => {
    cluster = await startCluster(['-f', HELLO]);
    opened = await openClusterPage(cluster, chromium ?? '');
    ({ page, url } = opened);
  });
  after(async () => {
    await opened?.close();
    await cluster?.down();
  });

  const status = () => page.getByRole('status');
  const rows = () => page.locator('.xterm-rows').innerText();
  const type = async (line: string) => {
    await page.keyboard.type(line);
    await page.keyboard.press('Enter');
  };
  const open = async () => {
    await page.goto('about:blank');
    await page.goto(`${url}#shell?pod=default%2Fclient`);
    await status().getByText('● default/client').waitFor();
  };
  /** Returns whether the sleeping process runs in the pod. */
  const naps = async () => {
    const { out } = await cluster.fairlead(
      'exec',
      'client',
      '--',
      'sh',
      '-c',
      'cat /proc/*/cmdline | tr "\\0" " "',
    );
    return out.includes(NAP);
  };

  test('without a shell, the terminal is not loaded; a pod is chosen from those that run', async () => {
    await page.goto(`${url}#shell`);
    await page.getByText('Choose a pod.').waitFor();
    assert.ok(!(await opened.wireSize()).files.some((file) => file.includes('terminal')));
    assert.deepEqual(await opened.violations(), []);
    await page.getByRole('combobox', { name: 'Pod' }).selectOption('default/client');
    await page.getByRole('button', { name: 'Open a shell' }).click();
    await status().getByText('● default/client').waitFor();
  });

  test('what is typed runs in the pod, in a terminal of the size that is shown', async () => {
    await type('echo "$(hostname) $TERM" | rev | rev; stty size');
    await eventually(rows, (text) => /^client xterm-256color\s*$/m.test(text), PATIENCE_MS);
    const shown = await page.locator('.xterm-rows > div').count();
    await eventually(rows, (text) => new RegExp(`^${shown} \\d+\\s*$`, 'm').test(text), PATIENCE_MS);
    await page.setViewportSize({ width: 900, height: 1000 });
    await eventually(async () => (await page.locator('.xterm-rows > div').count()) > shown);
    const larger = await page.locator('.xterm-rows > div').count();
    await type(`clear; while ! stty size | grep "^${larger} "; do sleep 0.1; done`);
    await eventually(rows, (text) => new RegExp(`^${larger} \\d+\\s*$`, 'm').test(text), PATIENCE_MS);
    await page.setViewportSize({ width: 1280, height: 800 });
  });

  test('colours and bold text, within the content security policy', async () => {
    await type(String.raw`clear; printf '\033[38;2;200;60;60mtrue\033[0m \033[1mbold\033[0m\n'`);
    const styleOf = (text: string, key: 'color' | 'fontWeight') =>
      page.evaluate(
        `getComputedStyle([...document.querySelectorAll('.xterm-rows span')].findLast((one) => one.textContent === '${text}')).${key}`,
      );
    await eventually(rows, (text) => /^true bold/m.test(text), PATIENCE_MS);
    assert.match(String(await styleOf('true', 'color')), /rgb\((19\d|2\d\d), \d+, \d+\)/);
    assert.equal(await styleOf('bold', 'fontWeight'), '700');
  });

  test('more output than the page can show at once arrives whole', async () => {
    await type('clear; seq 1 400000 | tail -c 2800000; echo done');
    await eventually(rows, (text) => /^400000\s+done/m.test(text), PATIENCE_MS);
  });

  for (const theme of ['Light', 'Dark']) {
    test(`${theme}: axe finds nothing`, async () => {
      const button = page.getByRole('button', { name: /^(Auto|Light|Dark)$/ });
      while ((await button.innerText()) !== theme) await button.click();
      assert.deepEqual(await opened.violations(), []);
    });
  }

  test('the keyboard leaves the terminal by Escape and Tab, and Tab alone is the shell’s', async () => {
    const focused = () => page.evaluate(`document.activeElement?.textContent`);
    await page.locator('.xterm').click();
    await type('clear');
    await page.keyboard.type('hostnam');
    await page.keyboard.press('Tab');
    await eventually(rows, (text) => /hostname/.test(text), PATIENCE_MS);
    await page.keyboard.press('Control+C');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Tab');
    assert.equal(await focused(), 'Screen reader');
    await page.keyboard.press('Enter');
    await page.locator('.xterm-accessibility').waitFor({ state: 'attached' });
    assert.deepEqual(await opened.violations(), []);
  });

  const EXITS = [
    { line: 'exit', end: '✓ The shell has ended: exit code 0' },
    { line: 'exit 7', end: '✕ The shell has ended: exit code 7' },
    { line: 'kill -9 $$', end: '✕ The shell has ended: exit code 137 (signal 9)' },
  ];
  for (const { line, end } of EXITS) {
    test(`${line}: the page says how the shell has ended, and opens another`, async () => {
      await open();
      await type(line);
      await status().getByText(end, { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Open again' }).click();
      await status().getByText('● default/client').waitFor();
    });
  }

  const LEAVES = [
    { what: 'closes', leave: () => page.goto('about:blank') },
    { what: 'shows another view', leave: () => page.goto(`${url}#map`) },
  ];
  for (const { what, leave } of LEAVES) {
    test(`when the page ${what}, the shell and what runs in it end`, async () => {
      await open();
      await type(NAP);
      await eventually(naps, Boolean, PATIENCE_MS);
      await leave();
      await eventually(naps, (runs) => !runs, PATIENCE_MS);
    });
  }

  test('input that nothing reads does not keep the shell after the page', async () => {
    await open();
    await type(NAP);
    await eventually(naps, Boolean, PATIENCE_MS);
    await page.evaluate(
      `document.querySelector('.xterm-helper-textarea').dispatchEvent(new ClipboardEvent('paste', {
        clipboardData: (() => { const data = new DataTransfer(); data.setData('text/plain', 'x'.repeat(1e6)); return data; })(),
      }))`,
    );
    await page.goto('about:blank');
    await eventually(naps, (runs) => !runs, PATIENCE_MS);
  });

  test('a pod that does not exist: the reason', async () => {
    await page.goto(`${url}#shell?pod=default%2Fnothing`);
    await status().getByText('✕ The shell has ended: pods "nothing" not found').waitFor();
  });

  test('a pod that is deleted: the reason', async () => {
    await cluster.ask('run', 'gone', '--image=fairlead', '--command', '--', 'sleep', 'infinity');
    await cluster.ask('wait', '--for=condition=Ready', 'pod/gone', '--timeout=60s');
    await page.goto(`${url}#shell?pod=default%2Fgone`);
    await status().getByText('● default/gone').waitFor();
    await cluster.ask('delete', 'pod', 'gone', '--grace-period=1');
    await status()
      .getByText(/^✕ The shell has ended: exit code 1\d\d \(signal \d+\)$/)
      .waitFor();
  });

  const REFUSED: readonly { what: string; path: string; headers: (own: string) => Record<string, string> }[] =
    [
      { what: 'without the token', path: '/api/shell', headers: (origin) => ({ origin }) },
      { what: 'of another site', path: 'api/shell', headers: () => ({ origin: 'https://attacker.example' }) },
      { what: 'without an origin', path: 'api/shell', headers: () => ({}) },
    ];
  for (const { what, path, headers } of REFUSED) {
    test(`a WebSocket ${what} is refused`, async () => {
      const target = new URL(`${path}?pod=default/client`, url);
      target.protocol = 'ws:';
      const socket = new WebSocket(target, { headers: headers(new URL(url).origin) });
      const answer = await new Promise<number>((resolve) => {
        socket.on('unexpected-response', (call, response) => {
          resolve(response.statusCode ?? 0);
          call.destroy();
        });
        socket.on('open', () => resolve(101));
      });
      assert.equal(answer, 403);
    });
  }

  test('with the terminal, at most 300 kB over the wire, all of this server, and nothing is wrong', async () => {
    const { files, bytes } = await opened.wireSize();
    assert.ok(files.some((file) => file.endsWith('/page.terminal.js')));
    assert.ok(bytes <= MAX_WIRE_BYTES, `${files.length} files, ${bytes} bytes`);
    assert.deepEqual(opened.foreignRequests(), []);
    assert.deepEqual(opened.problems, []);
  });

  test('when the command ends, the page says so, and the shell ends', async () => {
    await open();
    await type(NAP);
    await eventually(naps, Boolean, PATIENCE_MS);
    opened.command.kill('SIGKILL');
    await status().getByText('✕ The connection to “fairlead ui” is lost').waitFor();
    await eventually(naps, (runs) => !runs, PATIENCE_MS);
  });
});

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { forward, httpMap, listener, row, table } from '../testing/maps.ts';
import { HAPROXY, type RunningProxy, sendRaw, startMirror, startProxy } from './testing/running-proxy.ts';

const REQUEST = 'GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

describe('the proxy of a node', { skip: HAPROXY === null && 'HAProxy is not installed' }, () => {
  let proxy: RunningProxy;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  const rendered = (path: string) =>
    proxy.render(
      httpMap([listener('', [table('', [row('a', '/a', 'b/one:80'), row('b', path, 'b/one:80')])])]),
    );
  const endpoints = () => [{ address: '127.0.0.1', port: mirror.port }];
  before(async () => {
    proxy = await startProxy();
    mirror = await startMirror();
    assert.equal(await proxy.replace(rendered('/b'), endpoints), null);
  });
  after(async () => {
    await proxy?.stop();
    await mirror?.close();
  });

  /** Sends requests, each on a new connection, while `work` runs; returns the statuses with their counts. */
  const underLoad = async (work: () => Promise<void>): Promise<Record<string, number>> => {
    const counts: Record<string, number> = {};
    let isRunning = true;
    const send = async () => {
      while (isRunning) {
        const result = await sendRaw(proxy.port, REQUEST).then(
          ({ status }) => String(status),
          (error: Error) => error.message,
        );
        counts[result] = (counts[result] ?? 0) + 1;
      }
    };
    const senders = [send(), send(), send(), send()];
    await work();
    isRunning = false;
    await Promise.all(senders);
    return counts;
  };

  test('loses no request when it is replaced', async () => {
    const counts = await underLoad(async () => {
      for (let i = 0; i < 10; i++) assert.equal(await proxy.replace(rendered(`/b${i}`), endpoints), null);
    });
    assert.deepEqual(Object.keys(counts), ['200']);
  });

  test('keeps what runs when HAProxy refuses a configuration, and says why', async () => {
    const rendering = rendered('/c');
    const broken = { ...rendering, head: `${rendering.head}\n  no-such-keyword` };
    assert.match((await proxy.replace(broken, endpoints)) ?? '', /no-such-keyword/);
    assert.equal((await sendRaw(proxy.port, REQUEST)).status, 200);
  });

  test('is started again when it is killed: connections wait meanwhile', async () => {
    const pid = Number(/Pid: (\d+)/.exec(await proxy.process.ask('show info'))?.[1]);
    process.kill(pid, 'SIGKILL');
    const answers = await Promise.all(Array.from({ length: 10 }, () => sendRaw(proxy.port, REQUEST)));
    // Those that the killed process had accepted are its own.
    assert.ok(answers.filter(({ status }) => status === 200).length >= 9, JSON.stringify(answers));
    assert.equal((await sendRaw(proxy.port, REQUEST)).status, 200);
    assert.match(proxy.process.lastExit ?? '', /status|ended/);
  });

  test('a connection outlives the process that is replaced', async () => {
    const slow = await startMirror((_, response) => {
      response.write('first');
      setTimeout(() => response.end('last'), 500);
    });
    const to = () => [{ address: '127.0.0.1', port: slow.port }];
    const stream = proxy.render(httpMap([listener('', [table('', [row('a', '/', forward('b/one:80'))])])]));
    assert.equal(await proxy.replace(stream, to), null);
    const answer = sendRaw(proxy.port, REQUEST);
    while (slow.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(await proxy.replace(rendered('/d'), endpoints), null);
    assert.match((await answer).body, /first[\s\S]*last/);
    await slow.close();
  });
});

import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { probeHttp } from './http-probe.ts';

let server: Server;
let port = 0;
before(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? '/';
    const redirect = (location: string, code = 302) =>
      response.writeHead(code, { location }).end('elsewhere');
    if (path === '/ok') response.end('fine');
    else if (path === '/fails') response.writeHead(500).end();
    else if (path === '/to-ok') redirect('/ok');
    else if (path === '/to-fails') redirect(`http://127.0.0.1:${port}/fails`, 308);
    else if (path === '/away') redirect('http://0.0.0.0/');
    else if (path === '/loop') redirect('/loop');
    else if (path === '/unchanged') response.writeHead(304).end();
    else if (path.startsWith('/count/')) {
      const left = Number(path.slice('/count/'.length));
      if (left === 0) response.end();
      else redirect(`/count/${left - 1}`);
    } else if (path === '/silent') return;
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const ROWS: readonly [path: string, ok: boolean, message: RegExp, hasWarning?: boolean][] = [
  ['/ok', true, /^$/],
  ['/fails', false, /^HTTP probe failed with statuscode: 500$/],
  ['/to-ok', true, /^$/],
  ['/to-fails', false, /^HTTP probe failed with statuscode: 500$/],
  ['/away', true, /^Probe terminated redirects, Response body: elsewhere$/, true],
  ['/unchanged', true, /^Probe terminated redirects, Response body: $/, true],
  ['/count/9', true, /^$/],
  ['/count/10', false, /stopped after 10 redirects$/],
  ['/loop', false, /stopped after 10 redirects$/],
  ['/silent', false, /^Get "http:\/\/127\.0\.0\.1:\d+\/silent": no answer in 200 ms$/],
];
for (const [path, ok, message, hasWarning] of ROWS) {
  test(`a probe of ${path} ${ok ? 'passes' : 'fails'}${hasWarning ? ' with a warning' : ''}`, async () => {
    const result = await probeHttp(
      { path, port },
      { host: '127.0.0.1', port },
      path === '/silent' ? 200 : 60_000,
    );
    assert.equal(result.ok, ok, result.message);
    assert.match(result.message, message);
    assert.equal(result.hasWarning, hasWarning);
  });
}

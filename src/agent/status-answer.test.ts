import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { askStatus } from './status-answer.ts';

const ROWS = [
  { name: 'a short answer is read', body: '{}', read: { isAgents: true, body: '{}' } },
  { name: 'a long answer is not read to its end', body: 'x'.repeat(1 << 20), read: null },
];
for (const { name, body, read } of ROWS)
  test(name, async () => {
    const server = createServer((_, response) => {
      response.on('error', () => {});
      response.setHeader('server', 'fairlead');
      response.end(body);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      assert.deepEqual(await askStatus((server.address() as AddressInfo).port, '/programmed'), read);
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

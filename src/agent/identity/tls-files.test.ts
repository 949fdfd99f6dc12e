import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { manualClock } from '../../lib/clock.ts';
import { silentLogger } from '../../lib/log.ts';
import { createAuthority } from '../../lib/pki.ts';
import type { ServerTls } from '../../runtime/options.ts';
import { followTlsFiles } from './tls-files.ts';

const authority = createAuthority('ca', new Date());
const other = createAuthority('other', new Date());
const pair = (name: string) => authority.issue({ commonName: name, names: ['127.0.0.1'], usage: 'server' });
const first = pair('first');
const second = pair('second');
const FIRST: ServerTls = { ...first, clientCa: authority.cert };

const ROWS: readonly { name: string; written: Partial<ServerTls>; used: Partial<ServerTls> | null }[] = [
  { name: 'nothing', written: {}, used: null },
  { name: 'a new certificate with its key', written: second, used: { ...FIRST, ...second } },
  {
    name: 'a new client authority',
    written: { clientCa: other.cert },
    used: { ...FIRST, clientCa: other.cert },
  },
  { name: 'a certificate of another key, half of a change', written: { cert: second.cert }, used: null },
  { name: 'an empty certificate', written: { cert: '' }, used: null },
  { name: 'a key that is not PEM', written: { key: 'x' }, used: null },
];

for (const { name, written, used } of ROWS) {
  test(`files of a server change: ${name}`, () => {
    const folder = mkdtempSync(join(tmpdir(), 'tls-files-'));
    try {
      const files = {
        cert: join(folder, 'cert'),
        key: join(folder, 'key'),
        clientCa: join(folder, 'clientCa'),
      };
      const write = (texts: Partial<ServerTls>) => {
        for (const [file, text] of Object.entries(texts)) writeFileSync(join(folder, file), text);
      };
      write(FIRST);
      const clock = manualClock();
      const seen: Partial<ServerTls>[] = [];
      const followed = followTlsFiles({ files, clock, logger: silentLogger });
      followed.onChange((changed) => seen.push(changed));
      assert.deepEqual(followed.current, FIRST);
      write(written);
      clock.advance(60_000);
      assert.deepEqual(seen, used === null ? [] : [used]);
      // The rest of a change is noticed later, and an unchanged file is not a change.
      write(second);
      clock.advance(60_000);
      clock.advance(60_000);
      assert.equal(followed.current.cert, second.cert);
      assert.equal(seen.length, (used === null ? 0 : 1) + (used?.cert === second.cert ? 0 : 1));
      followed.close();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}

test('a missing file is an error at the start', () => {
  const files = { clientCa: '/does/not/exist' };
  assert.throws(() => followTlsFiles({ files, clock: manualClock(), logger: silentLogger }), /ENOENT/);
});

import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import { createBufferPool, LongBody, writeLongBody } from './long-body.ts';

const KIB = 1024;
const rows: readonly { what: string; texts: readonly (string | Buffer)[] }[] = [
  { what: 'nothing', texts: [] },
  { what: 'empty texts', texts: ['', 'a', '', 'b', ''] },
  { what: 'a text longer than a buffer', texts: ['x'.repeat(300 * KIB)] },
  { what: 'many texts', texts: Array.from({ length: 300 }, (_, i) => `${i}${'y'.repeat(KIB)}`) },
  { what: 'short texts around a long one', texts: ['[', 'é'.repeat(150 * KIB), ',', 'z', ']'] },
  { what: 'texts and bytes', texts: ['a', Buffer.from('bé'), 'c', Buffer.from('d'.repeat(200 * KIB)), 'e'] },
  {
    what: 'characters of one to four bytes',
    texts: Array.from({ length: 80 }, (_, i) => `${'-'.repeat(i)}${'aé€😀'.repeat(KIB)}`),
  },
];
for (const { what, texts } of rows) {
  test(`${what}: the same bytes, also through small buffers`, () => {
    assert.equal(new LongBody(texts).whole().toString(), texts.join(''));
    const small = new LongBody(texts);
    const buffer = Buffer.alloc(7);
    const pieces: Buffer[] = [];
    for (let length = small.fill(buffer); length > 0; length = small.fill(buffer))
      pieces.push(Buffer.from(buffer.subarray(0, length)));
    assert.equal(Buffer.concat(pieces).toString(), texts.join(''));
  });
}

test('texts are read only as far as they are written, and two buffers are enough for any text', async () => {
  let read = 0;
  function* texts() {
    for (; read < 2000; read++) yield 'x'.repeat(KIB);
  }
  const taken = new Set<Buffer>();
  const pool = createBufferPool();
  const counted = {
    ...pool,
    take() {
      const buffer = pool.take();
      taken.add(buffer);
      return buffer;
    },
  };
  let length = 0;
  let readAtFirst = 0;
  const sink = new Writable({
    write(bytes: Buffer, _encoding, done) {
      readAtFirst ||= read;
      length += bytes.length;
      setImmediate(done);
    },
  });
  await writeLongBody(new LongBody(texts()), sink, counted, new AbortController().signal);
  assert.equal(length, 2000 * KIB);
  assert.ok(readAtFirst < 200, `${readAtFirst} texts were read for the first buffer`);
  assert.ok(taken.size <= 2, `${taken.size} buffers were used`);
});

test('a closed response ends the writing, and its buffer is not used again', async () => {
  const closed = new AbortController();
  const pool = createBufferPool();
  let given = 0;
  const counted = { ...pool, give: () => given++ };
  const sink = new Writable({
    write() {
      setImmediate(() => closed.abort(new Error('closed')));
    },
  });
  const writing = writeLongBody(new LongBody(['x'.repeat(KIB)]), sink, counted, closed.signal);
  await assert.rejects(writing, /closed/);
  assert.equal(given, 0);
});

import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, test } from 'node:test';
import { type ManualClock, manualClock } from '../../lib/clock.ts';
import { FairleadError } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { eventually } from '../../lib/testing/eventually.ts';
import { type Link, MAX_MESSAGE, MAX_QUESTIONS, openLink } from './link.ts';

interface Scene {
  readonly link: Link;
  readonly clock: ManualClock;
  /** Sends this text as the other side. */
  write(text: string | Buffer): void;
  /** Returns the lines that the other side has received. */
  readonly received: string[];
  readonly notices: unknown[];
  endOtherSide(): void;
}

/** Opens a link, of which the test is the other side. `reads`: whether it reads. */
function openScene({ reads = true } = {}): Scene {
  const [ours, theirs] = duplexPair();
  const clock = manualClock();
  const received: string[] = [];
  const notices: unknown[] = [];
  const link = openLink({
    socket: ours,
    async answer(name, body) {
      if (name === 'wait') return await new Promise(() => {});
      if (name === 'refuse') throw new FairleadError('in use', { op: 'test', code: 'NodePorts' });
      if (name !== 'echo')
        throw new FairleadError(`no such question: ${name}`, { op: 'test', code: 'bad-request' });
      return body;
    },
    notice: (name, body) => notices.push([name, body]),
    clock,
    logger: silentLogger,
  });
  if (reads)
    theirs.setEncoding('utf8').on('data', (text: string) => received.push(...text.trim().split('\n')));
  theirs.on('error', () => {});
  return {
    ...{ link, clock, received, notices },
    write: (text) => void theirs.write(text),
    endOtherSide: () => void theirs.end(),
  };
}

const line = (message: object) => `${JSON.stringify(message)}\n`;
/** Resolves to whether the link still answers. */
async function answers({ write, received, link }: Scene): Promise<boolean> {
  write(line({ kind: 'question', id: 77, name: 'echo', body: 'still' }));
  const answer = JSON.stringify({ kind: 'answer', id: 77, body: 'still' });
  const reply = eventually(() => received.includes(answer), Boolean).then(() => true);
  return await Promise.race([reply, link.ended.then(() => false)]);
}

describe('what ends a link', () => {
  const rows: { name: string; sent: string | Buffer; reason: RegExp }[] = [
    { name: 'a line that is not JSON', sent: 'hello\n', reason: /malformed message "hello"/ },
    { name: 'an empty line', sent: '\n', reason: /malformed/ },
    { name: 'null', sent: 'null\n', reason: /malformed/ },
    { name: 'a list', sent: '[]\n', reason: /malformed/ },
    { name: 'an unknown kind', sent: line({ kind: 'order', id: 1 }), reason: /malformed/ },
    { name: 'a kind of the prototype', sent: line({ kind: 'constructor', id: 1 }), reason: /malformed/ },
    { name: 'a question without a name', sent: line({ kind: 'question', id: 1 }), reason: /malformed/ },
    {
      name: 'a question without a number',
      sent: line({ kind: 'question', id: 'x', name: 'echo' }),
      reason: /malformed/,
    },
    { name: 'a negative number', sent: line({ kind: 'answer', id: -1 }), reason: /malformed/ },
    {
      name: 'a failure without a code',
      sent: line({ kind: 'failure', id: 1, message: 'x' }),
      reason: /malformed/,
    },
    { name: 'a notice without a name', sent: line({ kind: 'notice', body: 1 }), reason: /malformed/ },
    {
      name: 'a line that is too large',
      sent: line({ kind: 'notice', name: 'x', body: 'x'.repeat(MAX_MESSAGE) }),
      reason: /too large/,
    },
    { name: 'text without an end', sent: 'x'.repeat(MAX_MESSAGE + 1), reason: /too large/ },
    {
      name: 'too many questions at once',
      sent: Array.from({ length: MAX_QUESTIONS + 1 }, (_, id) =>
        line({ kind: 'question', id, name: 'wait' }),
      ).join(''),
      reason: /asks too much/,
    },
  ];
  for (const { name, sent, reason } of rows) {
    test(name, async () => {
      const { link, write } = openScene();
      const open = link.ask('anything', null, null);
      write(sent);
      assert.match(await link.ended, reason);
      await assert.rejects(open, { code: 'ended' });
      await assert.rejects(link.ask('more', null, null), { code: 'ended' });
    });
  }

  test('the end of the other side', async () => {
    const { link, endOtherSide } = openScene();
    const open = link.ask('anything', null, null);
    endOtherSide();
    assert.match(await link.ended, /the other side closed it/);
    await assert.rejects(open, { code: 'ended', message: /anything: the other side closed it/ });
  });

  test('another side that does not read', async () => {
    const { link } = openScene({ reads: false });
    const body = 'x'.repeat(MAX_MESSAGE / 2);
    for (let i = 0; i < 40; i++) link.notify('large', body);
    assert.match(await link.ended, /does not read/);
  });
});

describe('what does not end a link', () => {
  const rows: { name: string; sent: string; answer: object | null }[] = [
    { name: 'an answer to no question', sent: line({ kind: 'answer', id: 9, body: 1 }), answer: null },
    {
      name: 'an unknown question: the error is its answer',
      sent: line({ kind: 'question', id: 1, name: '__proto__' }),
      answer: { kind: 'failure', id: 1, message: 'no such question: __proto__', code: 'bad-request' },
    },
    {
      name: 'a question that is refused',
      sent: line({ kind: 'question', id: 2, name: 'refuse' }),
      answer: { kind: 'failure', id: 2, message: 'in use', code: 'NodePorts' },
    },
    {
      name: 'a question without a body',
      sent: line({ kind: 'question', id: 3, name: 'echo' }),
      answer: { kind: 'answer', id: 3, body: null },
    },
  ];
  for (const { name, sent, answer } of rows) {
    test(name, async () => {
      const scene = openScene();
      scene.write(sent);
      assert.ok(await answers(scene));
      if (answer) assert.ok(scene.received.includes(JSON.stringify(answer)), scene.received.join());
    });
  }

  test('an answer that comes too late', async () => {
    const scene = openScene();
    const { link, clock, write } = scene;
    const asked = link.ask('slow', null, 1000);
    clock.advance(1000);
    await assert.rejects(asked, { code: 'ETIMEDOUT', message: 'slow: no answer within 1 s' });
    write(line({ kind: 'answer', id: 1, body: 'late' }));
    assert.ok(await answers(scene));
  });

  test('a character whose bytes arrive one by one', async () => {
    const scene = openScene();
    const { link, write } = scene;
    const asked = link.ask('name', null, null);
    for (const byte of Buffer.from(line({ kind: 'answer', id: 1, body: 'Zürich ⇄ 東京' })))
      write(Buffer.from([byte]));
    assert.equal(await asked, 'Zürich ⇄ 東京');
  });
});

test('a failure keeps its message and its code; one of another program version is EIO', async () => {
  const { link, write } = openScene();
  const [first, second] = [link.ask('attach', null, null), link.ask('attach', null, null)];
  write(line({ kind: 'failure', id: 1, message: 'host port 80 is in use', code: 'NodePorts' }));
  write(line({ kind: 'failure', id: 2, message: 'odd', code: 'new-in-version-9' }));
  await assert.rejects(first, { op: 'attach', code: 'NodePorts', message: 'host port 80 is in use' });
  await assert.rejects(second, { code: 'EIO' });
});

test('notices arrive in order', async () => {
  const scene = openScene();
  scene.write(
    line({ kind: 'notice', name: 'ready', body: null }) + line({ kind: 'notice', name: 'x', body: [1] }),
  );
  assert.ok(await answers(scene));
  assert.deepEqual(scene.notices, [
    ['ready', null],
    ['x', [1]],
  ]);
});

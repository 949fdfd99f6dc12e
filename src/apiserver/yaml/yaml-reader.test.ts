import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { createYamlReader } from './yaml-reader.ts';

const LINES = 20_000;
const lines = (line: (i: number) => string) => Array.from({ length: LINES }, (_, i) => line(i)).join('\n');
const read = createYamlReader();

for (const { name, text, check } of [
  { name: 'a short text', text: 'a: 1\nb: [x]', check: { object: { a: 1, b: ['x'] } } },
  {
    name: 'a long text',
    text: `data:\n${lines((i) => ` key${i}: ${i}`)}`,
    check: { object: { data: Object.fromEntries(Array.from({ length: LINES }, (_, i) => [`key${i}`, i])) } },
  },
  {
    name: 'a long text with a key twice',
    text: `a: 1\na: 2\nlist:\n${lines(() => '- x')}`,
    check: {
      object: { a: 2, list: Array(LINES).fill('x') },
      duplicateKey: 'line 2: key "a" already set in map',
    },
  },
]) {
  test(`${name} is read`, async () => assert.deepEqual(await read(text), check));
}

for (const { name, text } of [
  { name: 'a short text', text: 'a: [1' },
  { name: 'a long text', text: `list:\n${lines(() => '- x')}\n b: [1` },
  { name: 'a long text that is nested too deeply', text: '['.repeat(100_000) },
]) {
  test(`${name} with an error is refused, and the next one is read`, async () => {
    await assert.rejects(read(text), Error);
    assert.deepEqual(await read('a: 1'), { object: { a: 1 } });
  });
}

test('the event loop continues while long texts are read', async () => {
  const text = lines((i) => `key${i}: value`);
  let isOver = false;
  let passes = 0;
  const reading = Promise.all(Array.from({ length: 4 }, () => read(text))).finally(() => {
    isOver = true;
  });
  while (!isOver) {
    passes++;
    await setImmediate();
  }
  await reading;
  assert.ok(passes > 100, `${passes} passes of the event loop`);
});

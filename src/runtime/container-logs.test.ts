import assert from 'node:assert/strict';
import { appendFileSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type LogOptions, lastLines, readLog } from './container-logs.ts';

let folder: string;
let file: string;

const at = (second: number) => `2026-01-01T00:00:0${second}.000000000+00:00`;
const LINES = [
  `${at(1)} stdout F one`,
  `${at(2)} stderr F two`,
  `${at(3)} stdout P th`,
  `${at(3)} stderr F between`,
  `${at(5)} stdout P re`,
  `${at(5)} stdout F e`,
  `${at(6)} stdout F `,
  `${at(7)} stdout F seven`,
];

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'flt-logs-'));
  file = join(folder, '0.log');
  writeFileSync(file, `${LINES.join('\n')}\n`);
});
after(() => rmSync(folder, { recursive: true, force: true }));

async function read(options: Partial<LogOptions>, path = file): Promise<string> {
  const log = readLog(path, {
    follow: false,
    tailLines: null,
    sinceTime: null,
    timestamps: false,
    limitBytes: null,
    stream: null,
    ended: () => true,
    signal: new AbortController().signal,
    ...options,
  });
  return Buffer.concat(await log.toArray()).toString();
}

const since = (second: number) => ({ sinceTime: new Date(at(second)) });
const ROWS: readonly (readonly [what: string, options: Partial<LogOptions>, out: string])[] = [
  ['everything, with parts of lines joined', {}, 'one\ntwo\nthbetween\nree\n\nseven\n'],
  ['the last lines', { tailLines: 2 }, '\nseven\n'],
  ['more lines than exist', { tailLines: 99 }, 'one\ntwo\nthbetween\nree\n\nseven\n'],
  ['no lines', { tailLines: 0 }, ''],
  ['since a time', since(6), '\nseven\n'],
  ['a line is as old as its first part', since(4), '\nseven\n'],
  ['since its first part, the whole line', since(3), 'thbetween\nree\n\nseven\n'],
  ['since after the last line', since(9), ''],
  ['one stream', { stream: 'stderr' }, 'two\nbetween\n'],
  ['the first bytes, in the middle of a line', { limitBytes: 5 }, 'one\nt'],
  ['one timestamp per line', { ...since(6), timestamps: true }, `${at(6)} \n${at(7)} seven\n`],
];
for (const [what, options, out] of ROWS) {
  test(`log: ${what}`, async () => assert.equal(await read(options), out));
}

test('log: a line in parts has one timestamp, that of its first part', async () => {
  const parts = join(folder, 'parts.log');
  writeFileSync(parts, `${at(1)} stdout P a\n${at(2)} stdout F b\n`);
  assert.equal(await read({ timestamps: true }, parts), `${at(1)} ab\n`);
});

test('the last lines of a finished log', () => {
  assert.equal(lastLines(file, 2, 2048), '\nseven\n');
});

test('log: followed over a rotation, to the end', async () => {
  const path = join(folder, 'followed.log');
  writeFileSync(path, `${at(1)} stdout F one\n`);
  let ended = false;
  const log = readLog(path, {
    follow: true,
    tailLines: null,
    sinceTime: null,
    timestamps: false,
    limitBytes: null,
    stream: null,
    ended: () => ended,
    signal: new AbortController().signal,
  });
  const iterator = log[Symbol.asyncIterator]();
  assert.equal(String((await iterator.next()).value), 'one\n');
  appendFileSync(path, `${at(2)} stdout F two\n`);
  assert.equal(String((await iterator.next()).value), 'two\n');
  renameSync(path, `${path}.old`);
  writeFileSync(path, `${at(3)} stdout F three\n`);
  assert.equal(String((await iterator.next()).value), 'three\n');
  ended = true;
  assert.equal((await iterator.next()).done, true);
});

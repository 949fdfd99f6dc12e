import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readObject, relocate } from './object.ts';
import { elfObject } from './testing/elf-object.ts';

/** r1 = map; r0 = 1; exit */
const CODE = [
  0x18, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0,
];

describe('BPF objects', () => {
  test('reads a program, the maps that it names and the license', () => {
    const { license, programs } = readObject(elfObject({ code: CODE, map: 'frontends', at: 0 }));
    assert.equal(license, 'Apache-2.0');
    assert.deepEqual(
      programs.map(({ name, section, maps }) => ({ name, section, maps })),
      [{ name: 'allow', section: 'cgroup/connect4', maps: [{ at: 0, name: 'frontends' }] }],
    );
    assert.deepEqual([...(programs[0]?.instructions ?? [])], CODE);
  });

  test('relocation inserts the descriptor of the map', () => {
    const [program] = readObject(elfObject({ code: CODE, map: 'frontends', at: 0 })).programs;
    assert.ok(program);
    const out = relocate(program, new Map([['frontends', 0x1234]]));
    assert.deepEqual([...out.subarray(0, 16)], [0x18, 0x11, 0, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert.deepEqual([...program.instructions], CODE, 'the object stays as it was');
  });

  test('an object inside a larger buffer is read too', () => {
    const file = elfObject({ code: CODE, map: 'm', at: 0 });
    const pooled = Buffer.concat([Buffer.alloc(13), file, Buffer.alloc(7)]).subarray(13, 13 + file.length);
    const [program] = readObject(pooled).programs;
    assert.ok(program);
    assert.equal(relocate(program, new Map([['m', 7]]))[4], 7);
  });

  const rows: [what: string, file: () => Uint8Array, message: RegExp][] = [
    ['a file of another format', () => new Uint8Array(100), /not a little-endian ELF64 file/],
    ['an empty file', () => new Uint8Array(0), /not a little-endian ELF64 file/],
    [
      'an object of another machine',
      () => elfObject({ code: CODE, map: 'm', at: 0, machine: 62 }),
      /not for the BPF machine/,
    ],
    [
      'a file that is cut short',
      () => elfObject({ code: CODE, map: 'm', at: 0 }).subarray(0, 200),
      /truncated/,
    ],
    [
      'a reference to data',
      () => elfObject({ code: CODE, map: 'm', at: 0, mapSection: '.data' }),
      /only maps are supported/,
    ],
  ];
  for (const [what, file, message] of rows) {
    test(`${what} is refused with its reason`, () => assert.throws(() => readObject(file()), message));
  }

  test('the error for a missing map names it', () => {
    const [program] = readObject(elfObject({ code: CODE, map: 'missing', at: 0 })).programs;
    assert.ok(program);
    assert.throws(() => relocate(program, new Map()), /needs the map missing/);
  });

  test('a reference other than a load of a map is refused', () => {
    const [program] = readObject(elfObject({ code: CODE, map: 'm', at: 16 })).programs;
    assert.ok(program);
    assert.throws(
      () => relocate(program, new Map([['m', 3]])),
      /uses map m in an unsupported way at byte 16/,
    );
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eachAttribute, MessageWriter, readAttributes, readBe32, readText, readU32 } from './attributes.ts';
import { parseMessages } from './socket.ts';

const hex = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString('hex');

const rows: [string, (writer: MessageWriter) => void, string][] = [
  ['u32 in host order', (w) => w.attributeU32(1, 0x01020304), '0800010004030201'],
  ['be32 in network order', (w) => w.attributeBe32(2, 0x01020304), '0800020001020304'],
  ['be16 is padded to four bytes', (w) => w.attributeBe16(2, 0x0102), '0600020001020000'],
  [
    'text ends with a zero and is padded',
    (w) => w.attributeText(3, 'eth0'),
    '09000300' + '6574683000' + '000000',
  ],
  ['a flag has no value', (w) => w.flag(7), '04000700'],
  ['be64', (w) => w.attributeBe64(1, 0x0102030405060708n), '0c0001000102030405060708'],
  [
    'a nest counts its header and padding',
    (w) => w.nested(18, () => w.attributeText(1, 'vxlan')),
    '1000' + '1280' + '0a000100' + '76786c616e00' + '0000',
  ],
  ['an empty nest', (w) => w.nested(2, () => {}), '04000280'],
];
for (const [name, write, expected] of rows) {
  test(name, () => {
    const writer = new MessageWriter(4);
    write(writer);
    assert.equal(hex(writer.bytes()), expected);
  });
}

test('a message carries its own length, type, flags and sequence', () => {
  const writer = new MessageWriter();
  const start = writer.beginMessage(16, 0x405, 7);
  writer.u8(2).u8(0).u16(0);
  writer.attributeText(3, 'fl0');
  writer.endMessage(start);
  assert.equal(
    hex(writer.bytes()),
    '1c000000' + '1000' + '0504' + '07000000' + '00000000' + '02000000' + '08000300' + '666c3000',
  );
  const [message] = [...parseMessages(writer.bytes())];
  assert.equal(message?.type, 16);
  assert.equal(message?.sequence, 7);
  assert.equal(
    readText(readAttributes(message?.payload.subarray(4) ?? new Uint8Array()).get(3) ?? new Uint8Array()),
    'fl0',
  );
});

test('reading stops at malformed attributes without throwing', () => {
  assert.deepEqual([...eachAttribute(Uint8Array.of(3, 0, 1, 0))], []);
  assert.deepEqual([...eachAttribute(Uint8Array.of(200, 0, 1, 0, 1))], []);
  assert.deepEqual([...parseMessages(Uint8Array.of(1, 2, 3))], []);
  assert.equal(readU32(Uint8Array.of(1, 2)), 0x201);
  assert.equal(readBe32(Uint8Array.of(0xff, 0xff, 0xff, 0xff)), 0xffffffff);
});

test('a nest too long for its length field is refused', () => {
  const writer = new MessageWriter();
  assert.throws(() => writer.nested(1, () => writer.raw(new Uint8Array(70_000))), RangeError);
});

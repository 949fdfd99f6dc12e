/** An ELF object with one program that names one map, as clang lays them out (elf(5)). */
export function elfObject(options: {
  readonly code: readonly number[];
  readonly map: string;
  /** Byte of the code at which the map is named. */
  readonly at: number;
  readonly machine?: number;
  readonly mapSection?: string;
}): Uint8Array {
  const { code, map, at, machine = 247, mapSection = '.maps' } = options;
  const names = ['', '.strtab', 'cgroup/connect4', '.relcgroup/connect4', 'license', mapSection, '.symtab'];
  const STRTAB = 1;
  const CODE = 2;
  const MAPS = 5;
  const SYMBOLS = 6;
  const texts = `${[...names, 'allow', map].join('\0')}\0`;
  const offsetOf = (text: string) => texts.indexOf(`${text}\0`);
  const symbols = Buffer.alloc(24 * 3);
  // struct Elf64_Sym: name, info (binding << 4 | type), other, section
  symbols.writeUInt32LE(offsetOf('allow'), 24);
  symbols.writeUInt8((1 << 4) | 2, 28);
  symbols.writeUInt16LE(CODE, 30);
  symbols.writeUInt32LE(offsetOf(map), 48);
  symbols.writeUInt8((1 << 4) | 1, 52);
  symbols.writeUInt16LE(MAPS, 54);
  const relocations = Buffer.alloc(16);
  relocations.writeBigUInt64LE(BigInt(at), 0);
  relocations.writeUInt32LE(1, 8);
  relocations.writeUInt32LE(2, 12);
  const sections: [type: number, flags: number, bytes: Uint8Array, link?: number, info?: number][] = [
    [0, 0, Buffer.alloc(0)],
    [3, 0, Buffer.from(texts)],
    [1, 6, Uint8Array.from(code)],
    [9, 0, relocations, SYMBOLS, CODE],
    [1, 3, Buffer.from('Apache-2.0\0')],
    [1, 3, Buffer.alloc(32)],
    [2, 0, symbols, STRTAB],
  ];
  const header = Buffer.alloc(64);
  header.write('\x7fELF', 'latin1');
  header.set([2, 1, 1], 4);
  header.writeUInt16LE(1, 16);
  header.writeUInt16LE(machine, 18);
  let offset = 64;
  const table = sections.map(([type, flags, bytes, link = 0, info = 0], i) => {
    const entry = Buffer.alloc(64);
    entry.writeUInt32LE(offsetOf(names[i] ?? ''), 0);
    entry.writeUInt32LE(type, 4);
    entry.writeBigUInt64LE(BigInt(flags), 8);
    entry.writeBigUInt64LE(BigInt(offset), 24);
    entry.writeBigUInt64LE(BigInt(bytes.length), 32);
    entry.writeUInt32LE(link, 40);
    entry.writeUInt32LE(info, 44);
    offset += bytes.length;
    return entry;
  });
  header.writeBigUInt64LE(BigInt(offset), 40);
  header.writeUInt16LE(64, 58);
  header.writeUInt16LE(sections.length, 60);
  header.writeUInt16LE(STRTAB, 62);
  return new Uint8Array(Buffer.concat([header, ...sections.map(([, , bytes]) => bytes), ...table]));
}

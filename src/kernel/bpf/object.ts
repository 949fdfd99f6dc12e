import { FairleadError } from '../../lib/errors.ts';

// elf(5)
const EM_BPF = 247;
const SHT_PROGBITS = 1;
const SHT_REL = 9;
const SHF_EXECINSTR = 4;
// Documentation/bpf/llvm_reloc.rst
const R_BPF_64_64 = 1;
/** src_reg of a 64-bit load whose value is a map's descriptor. */
const BPF_PSEUDO_MAP_FD = 1;
const LOAD_64 = 0x18;

/** A program of an object file, before relocation. */
export interface ObjectProgram {
  /** The function's name. */
  readonly name: string;
  /** The name given by SEC(): "cgroup/connect4". */
  readonly section: string;
  readonly instructions: Uint8Array;
  /** References to maps, by offset in bytes. */
  readonly maps: readonly { readonly at: number; readonly name: string }[];
}

export interface BpfObject {
  readonly license: string;
  readonly programs: readonly ObjectProgram[];
}

/**
 * Reads an ELF object of clang for BPF: one program in each section, with all functions inlined, and maps by name only.
 * Calls between programs and global data are refused. Throws FairleadError, code "bad-object".
 */
export function readObject(file: Uint8Array): BpfObject {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (
    file.length < 64 ||
    view.getUint32(0) !== 0x7f454c46 ||
    view.getUint8(4) !== 2 ||
    view.getUint8(5) !== 1
  ) {
    throw badObject('it is not a little-endian ELF64 file');
  }
  if (view.getUint16(18, true) !== EM_BPF) throw badObject('it is not for the BPF machine');
  const sections = readSections(file, view);
  const bytesOf = ({ offset, size }: Section) => file.subarray(offset, offset + size);
  const license = sections.find(({ name }) => name === 'license');
  const symbols = readSymbols(sections, bytesOf);
  const programs: ObjectProgram[] = [];
  for (const [index, section] of sections.entries()) {
    if (section.type !== SHT_PROGBITS || !(section.flags & SHF_EXECINSTR) || section.size === 0) continue;
    const entry = symbols.find((symbol) => symbol.section === index && symbol.isFunction);
    if (!entry || symbols.filter((s) => s.section === index && s.isFunction).length > 1) {
      throw badObject(`section ${section.name} does not have one function`);
    }
    const relocations = sections.filter(({ type, info }) => type === SHT_REL && info === index);
    programs.push({
      name: entry.name,
      section: section.name,
      instructions: new Uint8Array(bytesOf(section)),
      maps: relocations.flatMap((table) => readRelocations(bytesOf(table), symbols, sections, section.name)),
    });
  }
  return { license: license ? textAt(bytesOf(license), 0) : '', programs };
}

/** Returns a program's instructions with the descriptors of its maps filled in. */
export function relocate(program: ObjectProgram, maps: ReadonlyMap<string, number>): Uint8Array {
  const out = new Uint8Array(program.instructions);
  const view = new DataView(out.buffer);
  for (const { at, name } of program.maps) {
    const fd = maps.get(name);
    if (fd === undefined)
      throw badObject(`program ${program.name} needs the map ${name}, which does not exist`);
    // struct bpf_insn: opcode, dst_reg:4 src_reg:4, offset, immediate
    if (out[at] !== LOAD_64)
      throw badObject(`program ${program.name} uses map ${name} in an unsupported way at byte ${at}`);
    view.setUint8(at + 1, (view.getUint8(at + 1) & 0x0f) | (BPF_PSEUDO_MAP_FD << 4));
    view.setInt32(at + 4, fd, true);
    view.setInt32(at + 12, 0, true);
  }
  return out;
}

interface Section {
  readonly name: string;
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly size: number;
  readonly link: number;
  readonly info: number;
}

interface Symbol {
  readonly name: string;
  readonly section: number;
  readonly isFunction: boolean;
}

function readSections(file: Uint8Array, view: DataView): Section[] {
  const at = Number(view.getBigUint64(40, true));
  const [entry, count, names] = [
    view.getUint16(58, true),
    view.getUint16(60, true),
    view.getUint16(62, true),
  ];
  if (at + entry * count > file.length) throw badObject('it is truncated');
  const raw = Array.from({ length: count }, (_, i) => at + i * entry);
  const offsetOf = (header: number) => Number(view.getBigUint64(header + 24, true));
  const sizeOf = (header: number) => Number(view.getBigUint64(header + 32, true));
  const nameHeader = raw[names];
  if (nameHeader === undefined) throw badObject('its sections have no names');
  const nameTable = file.subarray(offsetOf(nameHeader), offsetOf(nameHeader) + sizeOf(nameHeader));
  return raw.map((header) => ({
    name: textAt(nameTable, view.getUint32(header, true)),
    type: view.getUint32(header + 4, true),
    flags: Number(view.getBigUint64(header + 8, true)),
    offset: offsetOf(header),
    size: sizeOf(header),
    link: view.getUint32(header + 40, true),
    info: view.getUint32(header + 44, true),
  }));
}

function readSymbols(sections: readonly Section[], bytesOf: (section: Section) => Uint8Array): Symbol[] {
  const SHT_SYMTAB = 2;
  const STT_FUNC = 2;
  const table = sections.find(({ type }) => type === SHT_SYMTAB);
  const strings = table && sections[table.link];
  if (!table || !strings) throw badObject('it has no symbols');
  const bytes = bytesOf(table);
  const names = bytesOf(strings);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: Math.floor(bytes.length / 24) }, (_, i) => ({
    name: textAt(names, view.getUint32(i * 24, true)),
    isFunction: (view.getUint8(i * 24 + 4) & 0xf) === STT_FUNC,
    section: view.getUint16(i * 24 + 6, true),
  }));
}

function readRelocations(
  bytes: Uint8Array,
  symbols: readonly Symbol[],
  sections: readonly Section[],
  where: string,
): { at: number; name: string }[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: Math.floor(bytes.length / 16) }, (_, i) => {
    const at = Number(view.getBigUint64(i * 16, true));
    const kind = view.getUint32(i * 16 + 8, true);
    const symbol = symbols[view.getUint32(i * 16 + 12, true)];
    const target = symbol && sections[symbol.section];
    if (kind !== R_BPF_64_64 || !symbol || target?.name !== '.maps') {
      throw badObject(
        `${where} refers to ${symbol?.name || target?.name || 'something'} at byte ${at}: only maps are supported`,
      );
    }
    return { at, name: symbol.name };
  });
}

function textAt(bytes: Uint8Array, at: number): string {
  const end = bytes.indexOf(0, at);
  return Buffer.from(bytes.subarray(at, end < 0 ? bytes.length : end)).toString('latin1');
}

function badObject(why: string): FairleadError {
  return new FairleadError(`cannot use the BPF object: ${why}`, {
    op: 'read BPF object',
    code: 'bad-object',
    hint: 'rebuild it: node tools/build-bpf.mjs',
  });
}

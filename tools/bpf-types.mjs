// Reads the type information (BTF, Documentation/bpf/btf.rst) of an object that clang compiled for BPF with -g, as far as
// the maps' types need it: integers, arrays, structures, enums and typedefs.

const KIND = {
  int: 1,
  array: 3,
  struct: 4,
  union: 5,
  enum: 6,
  typedef: 8,
  volatile: 9,
  const: 10,
  restrict: 11,
  functionType: 13,
  variable: 14,
  section: 15,
  tag: 17,
  typeTag: 18,
  enum64: 19,
};

/** Returns the section of an ELF64 little-endian object with this name. */
function sectionOf(object, name) {
  const at = Number(object.readBigUInt64LE(40));
  const size = object.readUInt16LE(58);
  const headers = Array.from({ length: object.readUInt16LE(60) }, (_, i) => at + i * size);
  const bytes = (header) => {
    const offset = Number(object.readBigUInt64LE(header + 24));
    return object.subarray(offset, offset + Number(object.readBigUInt64LE(header + 32)));
  };
  const names = bytes(headers[object.readUInt16LE(62)]);
  const found = headers.find((header) => textAt(names, object.readUInt32LE(header)) === name);
  if (found === undefined) throw new Error(`the object has no section ${name}`);
  return bytes(found);
}

const textAt = (bytes, at) => bytes.toString('latin1', at, bytes.indexOf(0, at));

/** Returns all types, by their number; 0 is void. */
function readTypes(btf) {
  const headerLength = btf.readUInt32LE(4);
  const [typeOffset, typeLength, textOffset] = [8, 12, 16].map((at) => btf.readUInt32LE(at));
  const texts = btf.subarray(headerLength + textOffset);
  const start = headerLength + typeOffset;
  const types = [{ kind: 0, name: '', size: 0 }];
  for (let at = start; at < start + typeLength; ) {
    const word = (i) => btf.readUInt32LE(at + i * 4);
    const info = word(1);
    const kind = (info >>> 24) & 0x1f;
    const count = info & 0xffff;
    const isBitfield = info >>> 31 === 1;
    // `size` for types that have one, otherwise the number of the type that this one refers to.
    const type = { kind, name: textAt(texts, word(0)), size: word(2), to: word(2) };
    let words = 3;
    if (kind === KIND.array) {
      Object.assign(type, { to: word(3), count: word(5) });
      words += 3;
    } else if (kind === KIND.struct || kind === KIND.union) {
      if (isBitfield) throw new Error(`${type.name}: bit fields are not read`);
      type.members = Array.from({ length: count }, (_, i) => ({
        name: textAt(texts, word(3 + i * 3)),
        to: word(4 + i * 3),
        offset: word(5 + i * 3) / 8,
      }));
      words += count * 3;
    } else if (kind === KIND.enum) {
      type.values = Array.from({ length: count }, (_, i) => ({
        name: textAt(texts, word(3 + i * 2)),
        value: word(4 + i * 2),
      }));
      words += count * 2;
    } else if (kind === KIND.section || kind === KIND.enum64) {
      type.members = Array.from({ length: count }, (_, i) => ({ to: word(3 + i * 3) }));
      words += count * 3;
    } else if (kind === KIND.functionType) words += count * 2;
    else if (kind === KIND.int || kind === KIND.variable || kind === KIND.tag) words += 1;
    types.push(type);
    at += words * 4;
  }
  return types;
}

/**
 * Returns the maps of an object, each with its kind (a number of enum bpf_map_type), sizes in bytes,
 * capacity and flags; the structures of keys and values, with the offsets of their fields; and the enums
 * among these.
 */
export function readMapTypes(object) {
  const types = readTypes(sectionOf(object, '.BTF'));
  const aliases = new Set([KIND.typedef, KIND.const, KIND.volatile, KIND.restrict, KIND.typeTag]);
  const resolve = (number) => {
    let type = types[number];
    while (aliases.has(type.kind)) type = types[type.to];
    return type;
  };
  const sizeOf = (number) => {
    const type = resolve(number);
    return type.kind === KIND.array ? type.count * sizeOf(type.to) : type.size;
  };
  const maps = {};
  const structs = {};
  const enums = {};
  const collect = (number) => {
    const type = resolve(number);
    if (type.kind === KIND.array) collect(type.to);
    if (type.kind === KIND.enum) {
      enums[type.name] ??= Object.fromEntries(type.values.map(({ name, value }) => [name, value]));
    }
    if (type.kind !== KIND.struct || structs[type.name]) return;
    structs[type.name] = {
      size: type.size,
      ...Object.fromEntries(type.members.map(({ name, offset }) => [name, offset])),
    };
    for (const { to } of type.members) collect(to);
  };
  const section = types.find(({ kind, name }) => kind === KIND.section && name === '.maps');
  for (const { to } of section.members) {
    const variable = types[to];
    const { members } = resolve(variable.to);
    const pointed = (name) => resolve(members.find((member) => member.name === name)?.to ?? 0).to ?? null;
    // __uint(name, N) is a pointer to an array of N integers; __type(name, T) is a pointer to T.
    const number = (name) => {
      const array = pointed(name);
      return array === null ? 0 : types[array].count;
    };
    const [key, value] = [pointed('key'), pointed('value')];
    for (const type of [key, value]) if (type !== null) collect(type);
    maps[variable.name] = {
      type: number('type'),
      keySize: key === null ? 0 : sizeOf(key),
      valueSize: value === null ? 0 : sizeOf(value),
      maxEntries: number('max_entries'),
      flags: number('map_flags'),
    };
  }
  return { maps, structs, enums };
}

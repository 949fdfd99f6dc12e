import { type CelType, parseType, splitTypes } from './types.ts';

/** One way to call a function or an operator. */
export interface Signature {
  /** Whether the first argument is written before the name: `text.size()`. */
  readonly isMember: boolean;
  readonly args: readonly CelType[];
  readonly result: CelType;
}

/** Signatures by the function's name in errors of cel-go: "size", "sets.contains", "_==_". */
export type Signatures = ReadonlyMap<string, readonly Signature[]>;

/** Parses the table of signatures. */
export function parseSignatures(): Signatures {
  const signatures = new Map<string, Signature[]>();
  const add = (name: string, one: Signature) => signatures.set(name, [...(signatures.get(name) ?? []), one]);
  for (const line of FUNCTIONS.trim().split('\n')) {
    const [, receiver, name = '', args = '', result = ''] =
      /^(?:(\S.*?) )?\.?([\w.]+)\((.*)\): (.*)$/.exec(line.trim()) ?? [];
    const types = splitTypes(args).map(parseType);
    for (const one of receiver === undefined ? [null] : receiver.split('|')) {
      add(name, {
        isMember: one !== null,
        args: one === null ? types : [parseType(one), ...types],
        result: parseType(result),
      });
    }
  }
  for (const [name, operands] of Object.entries(OPERATORS)) {
    for (const line of operands) {
      const [args = '', result = ''] = line.split(': ');
      add(name, { isMember: false, args: splitTypes(args).map(parseType), result: parseType(result) });
    }
  }
  return signatures;
}

const NUMBERS = ['int', 'uint', 'double'];
const ORDERED = [
  // Numbers of different types can be compared (cel-go, CrossTypeNumericComparisons).
  ...NUMBERS.flatMap((left) => NUMBERS.map((right) => `${left}, ${right}: bool`)),
  ...['bool', 'string', 'bytes', 'timestamp', 'duration'].map((type) => `${type}, ${type}: bool`),
];
const same = (...types: readonly string[]) => types.map((type) => `${type}, ${type}: ${type}`);

/** The operators (cel-go common/stdlib). */
const OPERATORS: Readonly<Record<string, readonly string[]>> = {
  '_==_': ['T, T: bool'],
  '_!=_': ['T, T: bool'],
  '_<_': ORDERED,
  '_<=_': ORDERED,
  '_>_': ORDERED,
  '_>=_': ORDERED,
  '@in': ['T, list<T>: bool', 'T, map<T, V>: bool'],
  '_+_': [
    ...same('int', 'uint', 'double', 'string', 'bytes', 'list<T>', 'duration'),
    'timestamp, duration: timestamp',
    'duration, timestamp: timestamp',
  ],
  '_-_': [
    ...same('int', 'uint', 'double', 'duration'),
    'timestamp, timestamp: duration',
    'timestamp, duration: timestamp',
  ],
  '_*_': same('int', 'uint', 'double'),
  '_/_': same('int', 'uint', 'double'),
  '_%_': same('int', 'uint'),
  '!_': ['bool: bool'],
  '-_': ['int: int', 'double: double'],
  '_?_:_': ['bool, T, T: T'],
  '_[_]': [
    'list<T>, int: T',
    'map<K, V>, K: V',
    'optional<list<T>>, int: optional<T>',
    'optional<map<K, V>>, K: optional<V>',
  ],
  '_[?_]': [
    'list<T>, int: optional<T>',
    'map<K, V>, K: optional<V>',
    'optional<list<T>>, int: optional<T>',
    'optional<map<K, V>>, K: optional<V>',
  ],
};

/**
 * Functions of cel-go's standard library and of Kubernetes (k8s.io/apiserver/pkg/cel/library) whose signatures are
 * checked; before a space: the receivers. The result of any other function is of any type.
 */
const FUNCTIONS = `
size(string): int
size(bytes): int
size(list<T>): int
size(map<K, V>): int
string|bytes|list<T>|map<K, V> .size(): int
dyn(T): dyn
type(T): type<T>
bool(bool): bool
bool(string): bool
int(int): int
int(uint): int
int(double): int
int(string): int
int(timestamp): int
int(duration): int
uint(uint): uint
uint(int): uint
uint(double): uint
uint(string): uint
double(double): double
double(int): double
double(uint): double
double(string): double
bytes(bytes): bytes
bytes(string): bytes
string(string): string
string(bool): string
string(int): string
string(uint): string
string(double): string
string(bytes): string
string(timestamp): string
string(duration): string
string(net.IP): string
string(net.CIDR): string
timestamp(timestamp): timestamp
timestamp(string): timestamp
timestamp(int): timestamp
duration(duration): duration
duration(string): duration
duration(int): duration
string .startsWith(string): bool
string .endsWith(string): bool
string .contains(string): bool
string .matches(string): bool
matches(string, string): bool
string .charAt(int): string
string .lowerAscii(): string
string .upperAscii(): string
string .trim(): string
string .reverse(): string
string .replace(string, string): string
string .replace(string, string, int): string
string .split(string): list<string>
string .split(string, int): list<string>
string .substring(int): string
string .substring(int, int): string
string .find(string): string
string .findAll(string): list<string>
string .findAll(string, int): list<string>
string .indexOf(string): int
string .indexOf(string, int): int
string .lastIndexOf(string): int
string .lastIndexOf(string, int): int
list<T> .indexOf(T): int
list<T> .lastIndexOf(T): int
list<string> .join(): string
list<string> .join(string): string
list<int>|list<uint>|list<double>|list<bool>|list<string>|list<bytes>|list<timestamp>|list<duration> .isSorted(): bool
list<int> .sum(): int
list<uint> .sum(): uint
list<double> .sum(): double
list<duration> .sum(): duration
list<int> .min(): int
list<uint> .min(): uint
list<double> .min(): double
list<bool> .min(): bool
list<string> .min(): string
list<bytes> .min(): bytes
list<timestamp> .min(): timestamp
list<duration> .min(): duration
list<int> .max(): int
list<uint> .max(): uint
list<double> .max(): double
list<bool> .max(): bool
list<string> .max(): string
list<bytes> .max(): bytes
list<timestamp> .max(): timestamp
list<duration> .max(): duration
sets.contains(list<T>, list<T>): bool
sets.intersects(list<T>, list<T>): bool
sets.equivalent(list<T>, list<T>): bool
optional<T> .hasValue(): bool
optional<T> .value(): T
optional<T> .orValue(T): T
optional<T> .or(optional<T>): optional<T>
optional.none(): optional<T>
optional.of(T): optional<T>
optional.ofNonZeroValue(T): optional<T>
format.dns1123Label(): kubernetes.NamedFormat
format.dns1123Subdomain(): kubernetes.NamedFormat
format.dns1035Label(): kubernetes.NamedFormat
format.dns1123LabelPrefix(): kubernetes.NamedFormat
format.dns1123SubdomainPrefix(): kubernetes.NamedFormat
format.dns1035LabelPrefix(): kubernetes.NamedFormat
format.qualifiedName(): kubernetes.NamedFormat
format.labelValue(): kubernetes.NamedFormat
kubernetes.NamedFormat .validate(string): optional<list<string>>
url(string): kubernetes.URL
isURL(string): bool
quantity(string): kubernetes.Quantity
isQuantity(string): bool
kubernetes.Quantity .sign(): int
kubernetes.Quantity .isInteger(): bool
kubernetes.Quantity .asInteger(): int
kubernetes.Quantity .asApproximateFloat(): double
kubernetes.Quantity .isGreaterThan(kubernetes.Quantity): bool
kubernetes.Quantity .isLessThan(kubernetes.Quantity): bool
kubernetes.Quantity .compareTo(kubernetes.Quantity): int
kubernetes.Quantity .add(kubernetes.Quantity): kubernetes.Quantity
kubernetes.Quantity .add(int): kubernetes.Quantity
kubernetes.Quantity .sub(kubernetes.Quantity): kubernetes.Quantity
kubernetes.Quantity .sub(int): kubernetes.Quantity
isIP(string): bool
isCIDR(string): bool
ip(string): net.IP
cidr(string): net.CIDR
`;

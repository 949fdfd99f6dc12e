/** One changed version of a valid object. */
export interface Variation {
  /** Names the change: "spec.replicas = -1". */
  readonly name: string;
  /** Parameters of the request: "&fieldValidation=Strict". */
  readonly query?: string;
  /** Applies the change to a copy of the object, either as written or as stored by a server. */
  of(object: Record<string, unknown>): Record<string, unknown>;
}

type Change = readonly [label: string, value: unknown];

const TEXTS: readonly Change[] = [
  ['""', ''],
  ['bad characters', 'Not_a/Name!'],
  ['300 characters', 'x'.repeat(300)],
  ['another word', 'other'],
];
const NUMBERS: readonly Change[] = [
  ['0', 0],
  ['-1', -1],
  ['70000', 70000],
];

/** Other forms of addresses and ranges, and those that not every field may have. */
const ADDRESSES: readonly Change[] = [
  ['a leading zero', '010.1.2.3'],
  ['spaces', ' 10.1.2.3 '],
  ['IPv4 in IPv6', '::ffff:10.1.2.3'],
  ['not canonical', 'FD00:0:0::1'],
  ['a zone', 'fe80::1%eth0'],
  ['loopback', '127.0.0.1'],
  ['link-local', '169.254.1.1'],
  ['multicast', '224.0.0.1'],
  ['unspecified', '0.0.0.0'],
];
const RANGES: readonly Change[] = [
  ['a leading zero', '010.0.0.0/8'],
  ['a leading zero in the prefix', '10.0.0.0/08'],
  ['spaces', ' 10.0.0.0/8 '],
  ['host bits', '10.1.2.3/8'],
  ['IPv4 in IPv6', '::ffff:10.0.0.0/104'],
  ['not canonical', 'FD00:0:0::/32'],
  ['too long', '10.0.0.0/33'],
];
const ADDRESS = /^([0-9]+\.){3}[0-9]+$|^[0-9a-f]*:[0-9a-f:]*$/;

const MISSING = Symbol('missing');

/** Values of another type than the field's, and null, which means absent. */
const OTHER_TYPES: Readonly<Record<string, readonly Change[]>> = {
  string: [
    ['null', null],
    ['7', 7],
    ['{}', {}],
    ['64 characters', 'y'.repeat(64)],
    ['a space', ' '],
  ],
  number: [
    ['null', null],
    ['"7"', '7'],
    ['1.5', 1.5],
    ['2147483648', 2 ** 31],
  ],
  boolean: [
    ['null', null],
    ['"true"', 'true'],
  ],
  list: [
    ['null', null],
    ['{}', {}],
    ['"x"', 'x'],
    ['[null]', [null]],
  ],
  object: [
    ['null', null],
    ['[]', []],
    ['"x"', 'x'],
  ],
};

/**
 * Returns changes of every field below the metadata of `base`, one at a time, and of the metadata that all
 * kinds share.
 */
export function variationsOf(base: Record<string, unknown>): Variation[] {
  const result: Variation[] = [{ name: 'unchanged', of: (object) => object }];
  const add = (path: readonly (string | number)[], label: string, value: unknown, query = '') => {
    result.push({ name: `${path.join('.')} ${label}`, query, of: (object) => changed(object, path, value) });
  };
  const walk = (value: unknown, path: readonly (string | number)[]) => {
    if (path.length > 0) {
      add(path, 'left out', MISSING);
      for (const [label, other] of OTHER_TYPES[typeName(value)] ?? []) add(path, `= ${label}`, other);
    }
    if (typeof value === 'string') {
      for (const [label, text] of TEXTS) add(path, `= ${label}`, text);
      const [address = '', prefix] = value.split('/');
      const forms = ADDRESS.test(address) ? (prefix === undefined ? ADDRESSES : RANGES) : [];
      for (const [label, text] of forms) add(path, `= ${label}`, text);
    } else if (typeof value === 'number') {
      for (const [label, number] of NUMBERS) add(path, `= ${label}`, number);
    } else if (typeof value === 'boolean') {
      add(path, `= ${!value}`, !value);
    } else if (Array.isArray(value)) {
      add(path, '= []', []);
      if (value.length > 0) add(path, 'with its first item twice', [...value, value[0]]);
      value.forEach((item, index) => {
        walk(item, [...path, index]);
      });
    } else if (value !== null && typeof value === 'object') {
      if (path.length > 0) add(path, '= {}', {});
      const unknown = [...path, 'unknownField'];
      add(unknown, '= 1', 1);
      add(unknown, '= 1, strictly', 1, '&fieldValidation=Strict');
      add([...path, ''], '= "v"', 'v');
      for (const [key, item] of Object.entries(value)) {
        if (path.length === 0 && ['apiVersion', 'kind', 'metadata'].includes(key)) continue;
        walk(item, [...path, key]);
      }
    }
  };
  walk(base, []);
  for (const [label, change] of METADATA) {
    const of = (object: Record<string, unknown>) => ({
      ...object,
      metadata: { ...(object['metadata'] as object), ...change },
    });
    result.push({ name: `metadata: ${label}`, of });
  }
  return result;
}

function typeName(value: unknown): string {
  return Array.isArray(value) ? 'list' : typeof value;
}

/** Returns `object` with another value at a path; shares with it the parts that do not change. */
function changed(
  object: Record<string, unknown>,
  path: readonly (string | number)[],
  value: unknown,
): Record<string, unknown> {
  const [step = '', ...rest] = path;
  if (rest.length > 0) {
    const child = object[step];
    // A server may store less than it received (a write-only field): then there is nothing to change.
    if (typeof child !== 'object' || child === null) return object;
    const copy = shallowCopy(object);
    copy[step] = changed(child as Record<string, unknown>, rest, value);
    return copy;
  }
  const copy = shallowCopy(object);
  if (value !== MISSING) copy[step] = value;
  else if (Array.isArray(copy)) copy.splice(Number(step), 1);
  else delete copy[step];
  return copy;
}

/** Copies an object or a list; the items of a list are members, too. */
function shallowCopy(value: Record<string, unknown>): Record<string, unknown> {
  return Array.isArray(value) ? ([...value] as unknown as Record<string, unknown>) : { ...value };
}

const owner = { apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u' };

const METADATA: readonly (readonly [string, object])[] = [
  ['name with capitals', { name: 'Upper' }],
  ['name with dots', { name: 'a.b' }],
  ['name with a slash', { name: 'a/b' }],
  ['name with an underscore', { name: 'a_b' }],
  ['name that begins with a digit', { name: '1a' }],
  ['name of 254 characters', { name: 'x'.repeat(254) }],
  ['name of 64 characters', { name: 'x'.repeat(64) }],
  ['no name', { name: '' }],
  ['bad generateName', { name: '', generateName: 'Bad_' }],
  ['bad label key', { labels: { '-a': 'b' } }],
  ['bad label value', { labels: { a: '-b' } }],
  ['label key with a bad prefix', { labels: { 'A_/a': 'b' } }],
  ['bad annotation key', { annotations: { 'a/b/c': 'd' } }],
  ['annotations of 300 KB', { annotations: { a: 'x'.repeat(300_000) } }],
  ['finalizer without a domain', { finalizers: ['bad'] }],
  ['finalizer with bad characters', { finalizers: ['bad finalizer!'] }],
  ['finalizer foregroundDeletion with orphan', { finalizers: ['foregroundDeletion', 'orphan'] }],
  ['owner without kind', { ownerReferences: [{ ...owner, kind: '' }] }],
  ['owner without uid', { ownerReferences: [{ ...owner, uid: '' }] }],
  ['owner without name', { ownerReferences: [{ ...owner, name: '' }] }],
  ['owner without apiVersion', { ownerReferences: [{ ...owner, apiVersion: '' }] }],
  [
    'two controlling owners',
    {
      ownerReferences: [
        { ...owner, controller: true },
        { ...owner, uid: 'v', controller: true },
      ],
    },
  ],
  ['an Event as owner', { ownerReferences: [{ ...owner, kind: 'Event' }] }],
  ['negative generation', { generation: -1 }],
  ['the same finalizer twice', { finalizers: ['example.com/f', 'example.com/f'] }],
  ['the same owner twice', { ownerReferences: [owner, owner] }],
  ['an owner without uid field', { ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'p' }] }],
  ['empty maps', { labels: {}, annotations: {} }],
  ['null maps', { labels: null, annotations: null }],
  ['a null label', { labels: { a: null } }],
  ['managedFields', { managedFields: [{ manager: 'm', operation: 'Apply' }] }],
];

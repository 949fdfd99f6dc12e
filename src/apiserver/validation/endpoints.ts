import { familyOf } from '../../lib/address.ts';
import { type ApiObject, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { duplicate, type FieldError, invalid, required, tooMany } from '../status-error.ts';
import { checkAddress, checkCanonicalAddress, checkEndpointAddress } from './addresses.ts';
import { labelValueProblems, nameProblems, validateLabels } from './names.ts';
import {
  applyRules,
  checkImmutable,
  mustBeNamed,
  named,
  needed,
  neededOneOf,
  portNumber,
  type Rule,
  someOf,
} from './rules.ts';

const MAX_ENDPOINTS = 1000;
const MAX_ADDRESSES = 100;
const MAX_PORTS = 20_000;
const MAX_HINTS = 8;
const PROTOCOLS = ['SCTP', 'TCP', 'UDP'];

/** `old`: the addresses before the update. */
const addressRules = (old: ReadonlySet<string>): readonly Rule[] => [
  ['ip', (value, path, errors) => checkAddress(value, path, errors, old)],
  ['hostname', named('label')],
  ['nodeName', present('subdomain')],
  ['ip', (value, path, errors) => checkEndpointAddress(value, path, errors)],
];

const PORT_RULES: readonly Rule[] = [
  ['name', named('label')],
  ['port', portNumber],
  ['protocol', neededOneOf(...PROTOCOLS)],
  [
    'appProtocol',
    (value, path, errors, parent, root) => {
      if (value !== undefined) mustBeNamed('qualified')(value, path, errors, parent, root);
    },
  ],
];

const SLICE_PORT_RULES: readonly Rule[] = [
  ...PORT_RULES.filter(([field]) => field !== 'port' && field !== 'protocol'),
  ['protocol', someOf(...PROTOCOLS)],
];

export function validateEndpoints(endpoints: ApiObject, before: ApiObject | null): FieldError[] {
  if (before && equal(before['subsets'], endpoints['subsets'])) return [];
  const errors: FieldError[] = [];
  const rules = addressRules(new Set(addressesIn(before)));
  listAt(endpoints, 'subsets').forEach((subset, i) => {
    const field = `subsets[${i}]`;
    if (listAt(subset, 'addresses').length === 0 && listAt(subset, 'notReadyAddresses').length === 0) {
      errors.push(required(field, 'must specify `addresses` or `notReadyAddresses`'));
    }
    for (const list of ADDRESS_LISTS) {
      listAt(subset, list).forEach((address, j) => {
        applyRules(address, rules, `${field}.${list}[${j}]`, errors);
      });
    }
    const ports = listAt(subset, 'ports');
    ports.forEach((port, j) => {
      const place = `${field}.ports[${j}]`;
      if (ports.length > 1) needed()(port['name'], `${place}.name`, errors, port, port);
      applyRules(port, PORT_RULES, place, errors);
    });
  });
  return errors;
}

const ADDRESS_LISTS = ['addresses', 'notReadyAddresses'];

const addressesIn = (endpoints: ApiObject | null): string[] =>
  listAt(endpoints, 'subsets').flatMap((subset) =>
    ADDRESS_LISTS.flatMap((list) => listAt(subset, list).map(({ ip }) => String(ip ?? ''))),
  );

export function validateEndpointSlice(slice: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const type = slice['addressType'];
  neededOneOf('FQDN', 'IPv4', 'IPv6')(type, 'addressType', errors, slice as JsonObject, slice as JsonObject);
  const ports = listAt(slice, 'ports');
  if (ports.length > MAX_PORTS) errors.push(tooMany('ports', ports.length, MAX_PORTS));
  else validateSlicePorts(ports, errors);
  const endpoints = listAt(slice, 'endpoints');
  if (!before || !equal(before['endpoints'], slice['endpoints'])) {
    if (endpoints.length > MAX_ENDPOINTS) errors.push(tooMany('endpoints', endpoints.length, MAX_ENDPOINTS));
    else {
      endpoints.forEach((endpoint, i) => {
        validateEndpoint(endpoint, `endpoints[${i}]`, String(type), errors);
      });
    }
  }
  if (before) checkImmutable(slice, before, ['addressType'], errors);
  return errors;
}

function validateSlicePorts(ports: readonly JsonObject[], errors: FieldError[]): void {
  const names = new Set<unknown>();
  ports.forEach((port, i) => {
    const name = port['name'] ?? '';
    applyRules(port, SLICE_PORT_RULES, `ports[${i}]`, errors);
    if (names.has(name)) errors.push(duplicate(`ports[${i}].name`, name));
    names.add(name);
  });
}

function validateEndpoint(endpoint: JsonObject, path: string, type: string, errors: FieldError[]): void {
  const addresses = listAt(endpoint, 'addresses').map(String);
  if (addresses.length === 0) errors.push(required(`${path}.addresses`, 'must contain at least 1 address'));
  else if (addresses.length > MAX_ADDRESSES) {
    errors.push(tooMany(`${path}.addresses`, addresses.length, MAX_ADDRESSES));
  }
  addresses.forEach((address, i) => {
    const field = `${path}.addresses[${i}]`;
    if (type === 'FQDN') {
      for (const problem of nameProblems(address.replace(/\.$/, ''), 'fqdn'))
        errors.push(invalid(field, address, problem));
      return;
    }
    if (type !== 'IPv4' && type !== 'IPv6') return;
    const count = errors.length;
    checkAddress(address, field, errors);
    if (errors.length > count) return;
    if (familyOf(address) !== (type === 'IPv4' ? 'ipv4' : 'ipv6')) {
      errors.push(invalid(`${path}.addresses`, address, `must be an ${type} address`));
    } else checkCanonicalAddress(address, field, errors);
    checkEndpointAddress(address, field, errors);
  });
  const rules: readonly Rule[] = [
    ['nodeName', present('subdomain')],
    ['hostname', present('label')],
  ];
  applyRules(endpoint, rules, path, errors);
  errors.push(...validateLabels(endpoint['deprecatedTopology'], `${path}.deprecatedTopology`));
  const hints = endpoint['hints'];
  if (!isObject(hints)) return;
  for (const list of ['forZones', 'forNodes']) {
    const values = listAt(hints, list);
    if (values.length > MAX_HINTS) {
      errors.push(tooMany(`${path}.hints.${list}`, values.length, MAX_HINTS));
      continue;
    }
    const seen = new Set<unknown>();
    values.forEach((hint, i) => {
      const name = String(hint['name'] ?? '');
      const field = `${path}.hints.${list}[${i}].name`;
      if (seen.has(name)) errors.push(duplicate(field, name));
      seen.add(name);
      const problems = list === 'forZones' ? labelValueProblems(name) : nameProblems(name, 'subdomain');
      for (const problem of problems) errors.push(invalid(field, name, problem));
    });
  }
}

/** Checks a name of a form if the field is present, even empty. */
function present(form: 'subdomain' | 'label'): Rule[1] {
  return (value, path, errors, parent, root) => {
    if (value !== undefined) mustBeNamed(form)(value, path, errors, parent, root);
  };
}

import { type ApiObject, equal, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import {
  checkCanonicalCidr,
  checkCidr,
  isProperPart,
  looseRange,
  strictAddressProblem,
} from './addresses.ts';
import { nameProblems, portNameProblems, validateLabelSelector } from './names.ts';
import { applyRules, type Check, checkImmutable, portNumber } from './rules.ts';

const PROTOCOLS = ['TCP', 'UDP', 'SCTP'];

function validatePort(port: JsonObject, path: string, errors: FieldError[]): void {
  const { protocol, port: number, endPort } = port;
  if (!PROTOCOLS.includes(String(protocol)))
    errors.push(notSupported(`${path}.protocol`, protocol, PROTOCOLS));
  if (typeof number === 'string') {
    if (endPort !== undefined) {
      errors.push(invalid(`${path}.endPort`, endPort, 'may not be specified when `port` is non-numeric'));
    }
    for (const problem of portNameProblems(number)) errors.push(invalid(`${path}.port`, number, problem));
  } else if (typeof number === 'number') {
    portNumber(number, `${path}.port`, errors, port, port);
    if (typeof endPort !== 'number') return;
    if (endPort < number) {
      errors.push(invalid(`${path}.endPort`, number, 'must be greater than or equal to `port`'));
    }
    portNumber(endPort, `${path}.endPort`, errors, port, port);
  } else if (endPort !== undefined) {
    errors.push(invalid(`${path}.endPort`, endPort, 'may not be specified when `port` is not specified'));
  }
}

/** `old`: the ranges before the update. */
function validatePeer(peer: JsonObject, path: string, errors: FieldError[], old: ReadonlySet<string>): void {
  const block = peer['ipBlock'];
  const selectors = ['podSelector', 'namespaceSelector'].filter((field) => peer[field] !== undefined);
  for (const field of selectors) errors.push(...validateLabelSelector(peer[field], `${path}.${field}`));
  if (isObject(block)) validateBlock(block, `${path}.ipBlock`, errors, old);
  if (selectors.length === 0 && !isObject(block)) errors.push(required(path, 'must specify a peer'));
  else if (selectors.length > 0 && isObject(block)) {
    errors.push(forbidden(path, 'may not specify both ipBlock and another peer'));
  }
}

function validateBlock(
  block: JsonObject,
  path: string,
  errors: FieldError[],
  old: ReadonlySet<string>,
): void {
  if (!block['cidr']) {
    errors.push(required(`${path}.cidr`));
    return;
  }
  const whole = checkCidr(block['cidr'], `${path}.cidr`, errors, old);
  if (!whole) return;
  listAt(block, 'except').forEach((value, i) => {
    const field = `${path}.except[${i}]`;
    const part = checkCidr(value, field, errors, old);
    if (part && !isProperPart(part, whole)) {
      errors.push(invalid(field, value, 'must be a strict subset of `cidr`'));
    }
  });
}

const DIRECTIONS = [
  ['ingress', 'from'],
  ['egress', 'to'],
] as const;

/** Returns the ranges of a policy's peers with their fields. */
export function policyRanges(policy: ApiObject | null): [range: string, field: string][] {
  return DIRECTIONS.flatMap(([direction, peers]) =>
    listAt(policy, 'spec', direction).flatMap((rule, i) =>
      listAt(rule, peers).flatMap((peer, j): [string, string][] => {
        const block = peer['ipBlock'];
        if (!isObject(block)) return [];
        const field = `spec.${direction}[${i}].${peers}[${j}].ipBlock`;
        const except = listAt(block, 'except').map((one, k): [string, string] => [
          String(one),
          `${field}.except[${k}]`,
        ]);
        return [[String(block['cidr'] ?? ''), `${field}.cidr`], ...except];
      }),
    ),
  );
}

export function validateNetworkPolicy(policy: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(policy['spec']) ? policy['spec'] : {};
  const old = new Set(policyRanges(before).map(([range]) => range));
  errors.push(...validateLabelSelector(spec['podSelector'], 'spec.podSelector'));
  for (const [direction, peers] of DIRECTIONS) {
    listAt(spec, direction).forEach((rule, i) => {
      listAt(rule, 'ports').forEach((port, j) => {
        validatePort(port, `spec.${direction}[${i}].ports[${j}]`, errors);
      });
      listAt(rule, peers).forEach((peer, j) => {
        validatePeer(peer, `spec.${direction}[${i}].${peers}[${j}]`, errors, old);
      });
    });
  }
  const types = listAt(spec, 'policyTypes').map(String);
  if (types.length > 2) {
    errors.push(invalid('spec.policyTypes', types, 'may not specify more than two policyTypes'));
    return errors;
  }
  types.forEach((type, i) => {
    const known = ['Ingress', 'Egress'];
    if (!known.includes(type)) errors.push(notSupported(`spec.policyTypes[${i}]`, type, known));
  });
  return errors;
}

const MAX_CIDRS = 2;

export function validateServiceCidr(range: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const cidrs = listAt(range, 'spec', 'cidrs').map(String);
  if (before) {
    const old = listAt(before, 'spec', 'cidrs').map(String);
    if (equal(old, cidrs)) return errors;
    // A single range may become dual-stack; no other change is allowed.
    if (cidrs.length !== old.length && !(old.length === 1 && cidrs.length === 2)) {
      errors.push(invalid('spec.cidrs', cidrs, 'field is immutable'));
      return errors;
    }
    old.forEach((cidr, i) => {
      if (cidrs[i] !== cidr) errors.push(invalid(`spec.cidrs[${i}]`, cidrs[i], 'field is immutable'));
    });
    if (errors.length > 0) return errors;
  }
  if (cidrs.length === 0) {
    errors.push(required('spec.cidrs', 'at least one CIDR required'));
    return errors;
  }
  if (cidrs.length > MAX_CIDRS) {
    errors.push(invalid('spec.cidrs', cidrs, 'may only hold up to 2 values'));
    return errors;
  }
  cidrs.forEach((cidr, i) => {
    checkCanonicalCidr(cidr, `spec.cidrs[${i}]`, errors);
  });
  const families = cidrs.map((cidr) => looseRange(cidr)?.family);
  if (cidrs.length === 2 && families[0] && families[0] === families[1]) {
    errors.push(
      invalid(
        'spec.cidrs',
        cidrs,
        'may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64',
      ),
    );
  }
  return errors;
}

const pathSegment =
  (isNeeded: boolean): Check =>
  (value, path, errors) => {
    if (!value) {
      if (isNeeded) errors.push(required(path));
      return;
    }
    for (const problem of nameProblems(String(value), 'path')) errors.push(invalid(path, value, problem));
  };

export function validateIpAddress(address: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  const spec: JsonObject = isObject(address['spec']) ? address['spec'] : {};
  const parent = spec['parentRef'];
  if (!isObject(parent)) errors.push(required('spec.parentRef'));
  else {
    applyRules(
      parent,
      [
        ['resource', pathSegment(true)],
        ['name', pathSegment(true)],
        ['namespace', pathSegment(false)],
      ],
      'spec.parentRef',
      errors,
    );
    const group = parent['group'];
    if (group) {
      for (const problem of nameProblems(String(group), 'subdomain')) {
        errors.push(invalid('spec.parentRef.group', group, problem));
      }
    }
  }
  if (before) checkImmutable(address, before, ['spec.parentRef'], errors);
  return errors;
}

/** Checks the name of an IPAddress: the address in its canonical form. */
export const addressNameProblem = strictAddressProblem;

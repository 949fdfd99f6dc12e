import type { Kind } from '../kind.ts';
import { type ApiObject, at, listAt, textAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported } from '../status-error.ts';
import { addressWarnings, checkAddress, looseAddress } from './addresses.ts';
import { nameProblems } from './names.ts';

type StatusValidator = (object: ApiObject, before: ApiObject) => FieldError[];

const MODES = ['Proxy', 'VIP'];
const INGRESS = ['status', 'loadBalancer', 'ingress'] as const;

function checkIngressPoints(object: ApiObject, before: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const old = new Set(listAt(before, ...INGRESS).map(({ ip }) => String(ip ?? '')));
  listAt(object, ...INGRESS).forEach(({ ip, hostname, ipMode }, i) => {
    const field = `status.loadBalancer.ingress[${i}]`;
    if (ip) checkAddress(ip, `${field}.ip`, errors, old);
    if (ipMode !== undefined && !ip)
      errors.push(forbidden(`${field}.ipMode`, 'may not be specified when `ip` is not set'));
    else if (ipMode !== undefined && !MODES.includes(String(ipMode)))
      errors.push(notSupported(`${field}.ipMode`, ipMode, MODES));
    if (!hostname) return;
    const name = String(hostname);
    for (const problem of nameProblems(name, 'subdomain')) {
      errors.push(invalid(`${field}.hostname`, name, problem));
    }
    if (looseAddress(name) !== null) {
      errors.push(invalid(`${field}.hostname`, name, 'must be a DNS name, not an IP address'));
    }
  });
  return errors;
}

function validateServiceStatus(service: ApiObject, before: ApiObject): FieldError[] {
  const hasPoints = listAt(service, ...INGRESS).length > 0;
  if (!hasPoints || textAt(service, 'spec', 'type') === 'LoadBalancer')
    return checkIngressPoints(service, before);
  if (JSON.stringify(listAt(before, ...INGRESS)) === JSON.stringify(listAt(service, ...INGRESS))) return [];
  return [forbidden('status.loadBalancer.ingress', "may only be used when `spec.type` is 'LoadBalancer'")];
}

/** The lists of a pod's addresses, and the fields of the first one. */
const POD_LISTS = [
  ['hostIPs', 'hostIP'],
  ['podIPs', 'podIP'],
] as const;
const ONE_EACH = 'may specify no more than one IP for each IP family';

function validatePodStatus(pod: ApiObject, before: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  for (const [list, first] of POD_LISTS) {
    const addresses = podAddresses(pod, list, first);
    if (addresses.length === 0) continue;
    const hostIp = textAt(pod, 'status', 'hostIP');
    if (list === 'hostIPs' && addresses[0] !== hostIp)
      errors.push(invalid('status.hostIPs[0].ip', addresses[0], 'must be equal to `hostIP`'));
    const old = new Set(podAddresses(before, list, first));
    addresses.forEach((address, i) => {
      checkAddress(address, `status.${list}[${i}]`, errors, old);
    });
    if (addresses.length > 1) errors.push(...familyErrors(addresses, `status.${list}`));
  }
  return errors;
}

/** Checks that addresses are at most one of each family. */
function familyErrors(addresses: readonly string[], field: string): FieldError[] {
  const families = addresses.map((address) => looseAddress(address)?.includes(':'));
  const bad = families.indexOf(undefined);
  if (bad < 0 && addresses.length === 2 && families[0] !== families[1]) return [];
  const wrong = invalid(
    field,
    addresses.map((IP) => ({ IP })),
    ONE_EACH,
  );
  if (bad < 0) return [wrong];
  const message = `Internal error: failed to check for dual stack with error:invalid IP[${bad}]: ${addresses[bad]}`;
  return [{ field, reason: 'InternalError', message }, wrong];
}

/** Returns the addresses of a list; upstream takes podIP for the only one if the list begins with another one. */
function podAddresses(pod: ApiObject, list: string, first: string): string[] {
  const given = listAt(pod, 'status', list).map((one) => String(at(one, 'ip') ?? ''));
  const own = textAt(pod, 'status', first);
  return first === 'podIP' && own !== '' && given[0] !== own ? [own] : given;
}

/** By collection. */
const VALIDATORS: Readonly<Record<string, StatusValidator>> = {
  'ingresses.networking.k8s.io': checkIngressPoints,
  pods: validatePodStatus,
  services: validateServiceStatus,
};

/** Validates a changed status. */
export function validateStatus(kind: Kind, object: ApiObject, before: ApiObject): FieldError[] {
  return (kind.validateStatus ?? VALIDATORS[kind.collection])?.(object, before) ?? [];
}

/** Returns what the answer to a write of a status warns of. */
export function statusWarnings(collection: string, object: ApiObject): string[] {
  if (collection === 'pods') {
    return POD_LISTS.flatMap(([list, first]) =>
      podAddresses(object, list, first).flatMap((ip, i) => addressWarnings(ip, `status.${list}[${i}].ip`)),
    );
  }
  if (collection !== 'services' && collection !== 'ingresses.networking.k8s.io') return [];
  return listAt(object, ...INGRESS).flatMap(({ ip }, i) =>
    ip ? addressWarnings(ip, `status.loadBalancer.ingress[${i}]`) : [],
  );
}

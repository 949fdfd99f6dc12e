import { isObject, type JsonObject } from '../object.ts';
import { type FieldError, forbidden, invalid, required } from '../status-error.ts';
import {
  applyRules,
  atLeastZero,
  named,
  needed,
  neededOneOf,
  portNumber,
  portNumberOrName,
  positive,
  type Rule,
} from './rules.ts';

/** The actions of a probe or hook, and the rules of each. */
const ACTIONS: Readonly<Record<string, readonly Rule[]>> = {
  exec: [['command', needed()]],
  httpGet: [
    ['path', needed()],
    ['port', portNumberOrName],
    ['scheme', neededOneOf('HTTP', 'HTTPS')],
    ['httpHeaders[].name', named('httpHeader')],
  ],
  tcpSocket: [['port', portNumberOrName]],
  grpc: [['port', portNumber]],
  sleep: [],
};

const PROBE_RULES: readonly Rule[] = [
  ['initialDelaySeconds', atLeastZero],
  ['timeoutSeconds', atLeastZero],
  ['periodSeconds', atLeastZero],
  ['successThreshold', atLeastZero],
  ['failureThreshold', atLeastZero],
  ['terminationGracePeriodSeconds', positive],
];

function validateAction(handler: JsonObject, path: string, grace: unknown, errors: FieldError[]): void {
  let first = true;
  for (const [action, rules] of Object.entries(ACTIONS)) {
    const value = handler[action];
    if (!isObject(value)) continue;
    if (!first) errors.push(forbidden(`${path}.${action}`, 'may not specify more than 1 handler type'));
    else applyRules(value, rules, `${path}.${action}`, errors);
    first = false;
    if (action !== 'sleep') continue;
    const seconds = Number(value['seconds'] ?? 0);
    if (seconds < 0 || seconds > Number(grace ?? 30)) {
      errors.push(
        invalid(
          `${path}.sleep`,
          seconds,
          `must be non-negative and less than terminationGracePeriodSeconds (${grace})`,
        ),
      );
    }
  }
  if (first) errors.push(required(path, 'must specify a handler type'));
}

/**
 * Validates a container's probes: liveness and startup probes have successThreshold 1; readiness probes do not end
 * containers.
 */
export function validateProbes(
  container: JsonObject,
  path: string,
  grace: unknown,
  errors: FieldError[],
): void {
  for (const name of ['livenessProbe', 'readinessProbe', 'startupProbe']) {
    const probe = container[name];
    if (!isObject(probe)) continue;
    const field = `${path}.${name}`;
    validateAction(probe, field, grace, errors);
    applyRules(probe, PROBE_RULES, field, errors);
    if (name === 'readinessProbe') {
      if (probe['terminationGracePeriodSeconds'] !== undefined) {
        errors.push(
          invalid(
            `${field}.terminationGracePeriodSeconds`,
            probe['terminationGracePeriodSeconds'],
            'must not be set for readinessProbes',
          ),
        );
      }
    } else if (probe['successThreshold'] !== 1) {
      errors.push(invalid(`${field}.successThreshold`, probe['successThreshold'] ?? 0, 'must be 1'));
    }
  }
}

/** Validates a container's hooks. */
export function validateLifecycle(
  lifecycle: unknown,
  path: string,
  grace: unknown,
  errors: FieldError[],
): void {
  if (!isObject(lifecycle)) return;
  for (const hook of ['postStart', 'preStop']) {
    const handler = lifecycle[hook];
    if (isObject(handler)) validateAction(handler, `${path}.${hook}`, grace, errors);
  }
}

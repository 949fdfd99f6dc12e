import { at, isObject, type JsonObject, listAt } from '../object.ts';
import { type FieldError, forbidden, invalid, notSupported, required } from '../status-error.ts';
import { checkAddress } from './addresses.ts';
import {
  appArmorProfile,
  type PodScope,
  seccompProfile,
  validateContainerCommon,
  validateContainers,
} from './containers.ts';
import { nameProblems } from './names.ts';
import { validateResources } from './resources.ts';
import {
  applyRules,
  between,
  type Check,
  distinct,
  identifier,
  isUnset,
  mustBeNamed,
  named,
  neededOneOf,
  oneOf,
  type Rule,
} from './rules.ts';
import { affinity, nodeSelector, spread, tolerations } from './scheduling.ts';
import { validateVolumes } from './volumes.ts';

const MAX_INT32 = 2 ** 31 - 1;
const MAX_SEARCHES = 32;
const MAX_SEARCH_CHARACTERS = 2048;
const MAX_NAMESERVERS = 3;

const ipAddress: Check = (value, path, errors) => checkAddress(value, path, errors);

const dnsConfig: Check = (value, path, errors, spec) => {
  const config = isObject(value) ? value : {};
  const servers = listAt(config, 'nameservers');
  if (spec['dnsPolicy'] === 'None') {
    if (value === undefined) {
      errors.push(required(path, 'must provide `dnsConfig` when `dnsPolicy` is None'));
    } else if (servers.length === 0) {
      errors.push(
        required(`${path}.nameservers`, 'must provide at least one DNS nameserver when `dnsPolicy` is None'),
      );
    }
  }
  if (servers.length > MAX_NAMESERVERS) {
    errors.push(
      invalid(`${path}.nameservers`, servers, `must not have more than ${MAX_NAMESERVERS} nameservers`),
    );
  }
  servers.forEach((server, i) => {
    ipAddress(server, `${path}.nameservers[${i}]`, errors, config, config);
  });
  const searches = listAt(config, 'searches').map(String);
  if (searches.length > MAX_SEARCHES) {
    errors.push(
      invalid(`${path}.searches`, searches, `must not have more than ${MAX_SEARCHES} search paths`),
    );
  }
  if (searches.join(' ').length > MAX_SEARCH_CHARACTERS) {
    errors.push(
      invalid(
        `${path}.searches`,
        searches,
        `must not have more than ${MAX_SEARCH_CHARACTERS} characters (including spaces) in the search list`,
      ),
    );
  }
  searches.forEach((search, i) => {
    if (search === '.') return;
    const name = search.replace(/\.$/, '').replaceAll('_', 'a');
    for (const problem of nameProblems(name, 'subdomain')) {
      errors.push(invalid(`${path}.searches[${i}]`, search, problem));
    }
  });
  listAt(config, 'options').forEach((option, i) => {
    if (!option['name']) errors.push(required(`${path}.options[${i}]`, 'must not be empty'));
  });
};

const SYSCTL = /^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$/;

const sysctls: Check = (value, path, errors) => {
  const names = new Set<string>();
  (Array.isArray(value) ? value : []).forEach((one, i) => {
    const name = String((one as JsonObject)['name'] ?? '');
    if (name === '') errors.push(required(`${path}[${i}].name`));
    else if (name.length > 253 || !SYSCTL.test(name)) {
      errors.push(
        invalid(
          `${path}[${i}].name`,
          name,
          `must have at most 253 characters and match regex ${SYSCTL.source}`,
        ),
      );
    } else if (names.has(name)) {
      errors.push({
        field: `${path}[${i}].name`,
        reason: 'FieldValueDuplicate',
        message: `Duplicate value: "${name}"`,
      });
    }
    names.add(name);
  });
};

const SECURITY_RULES: readonly Rule[] = [
  ['runAsUser', identifier],
  ['runAsGroup', identifier],
  ['fsGroup', identifier],
  ['supplementalGroups[]', identifier],
  ['fsGroupChangePolicy', oneOf('OnRootMismatch', 'Always')],
  ['supplementalGroupsPolicy', oneOf('Merge', 'Strict')],
  ['seLinuxChangePolicy', oneOf('MountOption', 'Recursive')],
  ['seccompProfile', seccompProfile],
  ['appArmorProfile', appArmorProfile],
  ['sysctls', sysctls],
];

const RULES: readonly Rule[] = [
  ['restartPolicy', neededOneOf('Always', 'OnFailure', 'Never')],
  ['dnsPolicy', neededOneOf('ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None')],
  ['nodeSelector', nodeSelector],
  ['affinity', affinity],
  ['dnsConfig', dnsConfig],
  ['readinessGates[].conditionType', mustBeNamed('qualified')],
  ['schedulingGates', distinct((gate) => gate['name'])],
  [
    'schedulingGates[]',
    (gate, path, errors, parent, root) =>
      mustBeNamed('qualified')(at(gate, 'name') ?? '', path, errors, parent, root),
  ],
  ['topologySpreadConstraints', spread],
  ['serviceAccountName', named('subdomain')],
  ['nodeName', named('subdomain')],
  ['activeDeadlineSeconds', between(1, MAX_INT32, 'must be between 1 and 2147483647, inclusive')],
  ['hostname', named('label')],
  ['subdomain', named('label')],
  ['tolerations', tolerations],
  ['hostAliases[].ip', ipAddress],
  ['hostAliases[].hostnames[]', mustBeNamed('subdomain')],
  ['priorityClassName', named('subdomain')],
  ['runtimeClassName', runtimeClass],
  ['preemptionPolicy', preemptionPolicy],
  ['overhead', overhead],
  ['os', osName],
];

function runtimeClass(value: unknown, path: string, errors: FieldError[]): void {
  if (value === undefined) return;
  for (const problem of nameProblems(String(value), 'subdomain')) errors.push(invalid(path, value, problem));
}

const PREEMPTION_POLICIES = ['PreemptLowerPriority', 'Never'];

function preemptionPolicy(value: unknown, path: string, errors: FieldError[]): void {
  if (value === '') errors.push(required(path));
  else if (value !== undefined && !PREEMPTION_POLICIES.includes(String(value)))
    errors.push(notSupported(path, value, PREEMPTION_POLICIES));
}

function overhead(value: unknown, path: string, errors: FieldError[]): void {
  validateResources({ limits: value }, path, errors);
}

function osName(value: unknown, path: string, errors: FieldError[]): void {
  if (!isObject(value)) return;
  const name = value['name'];
  // Upstream reports the object, not its field.
  if (!name) errors.push(required(`${path}.name`));
  else if (name !== 'linux' && name !== 'windows') {
    errors.push(notSupported(path, name, ['linux', 'windows']));
  }
}

/** Validates the spec of a pod, also inside a template; `podName` is absent there. */
export function validatePodSpec(spec: JsonObject, path: string, podName = ''): FieldError[] {
  const errors: FieldError[] = [];
  const field = (name: string) => `${path}.${name}`;
  if (spec['terminationGracePeriodSeconds'] === undefined) {
    errors.push(required(field('terminationGracePeriodSeconds')));
  }
  const scope: PodScope = {
    volumes: validateVolumes(spec, field('volumes'), podName, errors),
    claims: new Set(listAt(spec, 'resourceClaims').map((claim) => String(claim['name']))),
    grace: spec['terminationGracePeriodSeconds'],
    restartPolicy: spec['restartPolicy'],
  };
  validateContainers(spec, path, scope, errors);
  validateEphemeral(spec, path, scope, errors);
  if (spec['hostNetwork'] === true) checkHostNetwork(spec, path, errors);
  applyRules(spec, RULES, path, errors);
  const security = spec['securityContext'];
  if (isObject(security)) applyRules(security, SECURITY_RULES, field('securityContext'), errors);
  if (spec['shareProcessNamespace'] === true && spec['hostPID'] === true) {
    errors.push(
      invalid(
        field('securityContext.shareProcessNamespace'),
        true,
        'ShareProcessNamespace and HostPID cannot both be enabled',
      ),
    );
  }
  if (spec['hostUsers'] === false) {
    for (const name of ['hostNetwork', 'hostPID', 'hostIPC']) {
      if (spec[name] === true) errors.push(forbidden(field(name), 'when `hostUsers` is false'));
    }
  }
  return errors;
}

function checkHostNetwork(spec: JsonObject, path: string, errors: FieldError[]): void {
  for (const list of ['containers', 'initContainers']) {
    listAt(spec, list).forEach((container, i) => {
      listAt(container, 'ports').forEach((port, j) => {
        if ((port['hostPort'] ?? 0) === (port['containerPort'] ?? 0)) return;
        errors.push(
          invalid(
            `${path}.${list}[${i}].ports[${j}].hostPort`,
            port['hostPort'] ?? 0,
            'must match `containerPort` when `hostNetwork` is true',
          ),
        );
      });
    });
  }
}

const FORBIDDEN_IN_EPHEMERAL = [
  'ports',
  'livenessProbe',
  'readinessProbe',
  'startupProbe',
  'lifecycle',
  'resources',
  'resizePolicy',
];

function validateEphemeral(spec: JsonObject, path: string, scope: PodScope, errors: FieldError[]): void {
  const others = [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')];
  const names = new Set(others.map((container) => container['name']));
  listAt(spec, 'ephemeralContainers').forEach((container, i) => {
    const field = `${path}.ephemeralContainers[${i}]`;
    validateContainerCommon(container, field, scope, errors);
    if (names.has(container['name'])) {
      errors.push({
        field: `${field}.name`,
        reason: 'FieldValueDuplicate',
        message: `Duplicate value: ${JSON.stringify(container['name'] ?? '')}`,
      });
    }
    names.add(container['name']);
    const target = container['targetContainerName'];
    if (target && !others.some((one) => one['name'] === target)) {
      errors.push({
        field: `${field}.targetContainerName`,
        reason: 'FieldValueNotFound',
        message: `Not found: ${JSON.stringify(target)}`,
      });
    }
    for (const name of FORBIDDEN_IN_EPHEMERAL) {
      if (!isUnset(container[name])) {
        errors.push(forbidden(`${field}.${name}`, `cannot be set for an Ephemeral Container`));
      }
    }
  });
}

import { at, isObject, type JsonObject, listAt, textAt } from '../../object.ts';

/** A pod's violation of a control: the reason, and the offending containers or values. */
export interface Violation {
  readonly reason: string;
  readonly detail: string;
}

/** A control of the Pod Security Standards; returns null for a pod that complies. */
export type Check = (pod: PodParts) => Violation | null;

/** The parts of a pod that controls inspect. */
export interface PodParts {
  readonly annotations: Readonly<Record<string, unknown>>;
  readonly spec: JsonObject;
  readonly containers: readonly JsonObject[];
}

/** Extracts these parts from `metadata` and `spec` of a pod or of a pod template. */
export function podParts(metadata: unknown, spec: JsonObject): PodParts {
  const annotations = at(metadata, 'annotations');
  return {
    annotations: isObject(annotations) ? annotations : {},
    spec,
    containers: ['initContainers', 'containers', 'ephemeralContainers'].flatMap((list) => listAt(spec, list)),
  };
}

const quoted = (values: readonly unknown[]) => values.map((value) => JSON.stringify(value)).join(', ');
const names = (containers: readonly JsonObject[]) => quoted(containers.map(({ name }) => name));
const plural = (count: number, word: string) => (count === 1 ? word : `${word}s`);
const containersText = (containers: readonly JsonObject[]) =>
  `${plural(containers.length, 'container')} ${names(containers)}`;
const isWindows = ({ spec }: PodParts) => textAt(spec, 'os', 'name') === 'windows';
const violation = (reason: string, detail: string): Violation => ({ reason, detail });

/** Returns the containers whose setting (their own, or else the pod's) is not allowed. */
function offenders(
  pod: PodParts,
  isBad: (container: JsonObject) => boolean,
  tell: (containers: readonly JsonObject[]) => Violation,
): Violation | null {
  const found = pod.containers.filter(isBad);
  return found.length > 0 ? tell(found) : null;
}

const BASELINE_CAPABILITIES = new Set([
  'AUDIT_WRITE',
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'MKNOD',
  'NET_BIND_SERVICE',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_CHROOT',
]);
const SAFE_SYSCTLS = new Set([
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.ip_unprivileged_port_start',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.ping_group_range',
  'net.ipv4.ip_local_reserved_ports',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_wmem',
]);
const SELINUX_TYPES = new Set([
  '',
  'container_t',
  'container_init_t',
  'container_kvm_t',
  'container_engine_t',
]);
const RESTRICTED_VOLUMES = new Set([
  'configMap',
  'csi',
  'downwardAPI',
  'emptyDir',
  'ephemeral',
  'image',
  'persistentVolumeClaim',
  'projected',
  'secret',
]);

const securityOf = (object: unknown): JsonObject => {
  const context = at(object, 'securityContext');
  return isObject(context) ? context : {};
};
const capabilities = (container: JsonObject, list: 'add' | 'drop'): string[] => {
  const value = at(container, 'securityContext', 'capabilities', list);
  return Array.isArray(value) ? value.map(String) : [];
};

/** The controls of the level "baseline". Source: kubernetes.io/docs/concepts/security/pod-security-standards. */
export const BASELINE: readonly Check[] = [
  ({ annotations }) => {
    const found = Object.entries(annotations)
      .filter(
        ([key, value]) =>
          key.startsWith('container.apparmor.security.beta.kubernetes.io/') &&
          !['', 'runtime/default'].includes(String(value)) &&
          !String(value).startsWith('localhost/'),
      )
      .map(([key, value]) => `${JSON.stringify(`${key}=${String(value)}`)}`)
      .sort();
    return found.length > 0
      ? violation(
          `forbidden AppArmor ${plural(found.length, 'profile')}`,
          `${plural(found.length, 'annotation')} ${found.join(', ')}`,
        )
      : null;
  },
  (pod) =>
    offenders(
      pod,
      (container) => capabilities(container, 'add').some((one) => !BASELINE_CAPABILITIES.has(one)),
      (found) => {
        const added = [...new Set(found.flatMap((one) => capabilities(one, 'add')))]
          .filter((one) => !BASELINE_CAPABILITIES.has(one))
          .sort();
        return violation(
          'non-default capabilities',
          `${containersText(found)} must not include ${quoted(added)} in securityContext.capabilities.add`,
        );
      },
    ),
  ({ spec }) => {
    const found = ['hostNetwork', 'hostPID', 'hostIPC'].filter((field) => spec[field] === true);
    return found.length > 0
      ? violation('host namespaces', found.map((field) => `${field}=true`).join(', '))
      : null;
  },
  ({ spec }) => {
    const found = listAt(spec, 'volumes').filter(
      (volume) => volume['hostPath'] !== undefined && volume['hostPath'] !== null,
    );
    return found.length > 0
      ? violation('hostPath volumes', `${plural(found.length, 'volume')} ${names(found)}`)
      : null;
  },
  (pod) => {
    const ports = (container: JsonObject) =>
      listAt(container, 'ports').flatMap(({ hostPort }) =>
        typeof hostPort === 'number' && hostPort > 0 ? [hostPort] : [],
      );
    return offenders(
      pod,
      (container) => ports(container).length > 0,
      (found) => {
        const all = [...new Set(found.flatMap(ports))].sort((a, b) => a - b);
        return violation(
          'hostPort',
          `${containersText(found)} ${found.length === 1 ? 'uses' : 'use'} ${plural(all.length, 'hostPort')} ${all.join(', ')}`,
        );
      },
    );
  },
  // The node itself sends probes and hooks: not even to its own loopback.
  (pod) => {
    const hosts = (container: JsonObject) =>
      [
        ...['livenessProbe', 'readinessProbe', 'startupProbe'].map((probe) => at(container, probe)),
        ...['postStart', 'preStop'].map((hook) => at(container, 'lifecycle', hook)),
      ]
        .flatMap((handler) => [textAt(handler, 'httpGet', 'host'), textAt(handler, 'tcpSocket', 'host')])
        .filter((host) => host !== '');
    return offenders(
      pod,
      (container) => hosts(container).length > 0,
      (found) => {
        const used = [...new Set(found.flatMap(hosts))].sort();
        const sorted = found.toSorted((a, b) => (String(a['name']) < String(b['name']) ? -1 : 1));
        return violation(
          'probe or lifecycle host',
          `${containersText(sorted)} ${found.length === 1 ? 'uses' : 'use'} probe or lifecycle ${plural(used.length, 'host')} ${quoted(used)}`,
        );
      },
    );
  },
  (pod) =>
    offenders(
      pod,
      (container) => securityOf(container)['privileged'] === true,
      (found) =>
        violation('privileged', `${containersText(found)} must not set securityContext.privileged=true`),
    ),
  (pod) =>
    offenders(
      pod,
      (container) => !['', 'Default'].includes(textAt(securityOf(container), 'procMount')),
      (found) =>
        violation(
          'procMount',
          `${containersText(found)} must not set securityContext.procMount to ${quoted([...new Set(found.map((one) => textAt(securityOf(one), 'procMount')))])}`,
        ),
    ),
  (pod) => {
    const options = (object: unknown) => securityOf(object)['seLinuxOptions'];
    const isBad = (object: unknown) =>
      !SELINUX_TYPES.has(textAt(options(object), 'type')) ||
      textAt(options(object), 'user') !== '' ||
      textAt(options(object), 'role') !== '';
    const found = pod.containers.filter(isBad);
    const setters = [
      ...(isBad(pod.spec) ? ['pod'] : []),
      ...(found.length > 0 ? [containersText(found)] : []),
    ];
    if (setters.length === 0) return null;
    const all = [...(isBad(pod.spec) ? [pod.spec] : []), ...found];
    const types = [
      ...new Set(all.map((one) => textAt(options(one), 'type')).filter((type) => !SELINUX_TYPES.has(type))),
    ];
    const data = [
      ...(types.length > 0 ? [`${plural(types.length, 'type')} ${quoted(types)}`] : []),
      ...(['user', 'role'] as const)
        .filter((field) => all.some((one) => textAt(options(one), field) !== ''))
        .map((field) => `${field} may not be set`),
    ];
    return violation(
      'seLinuxOptions',
      `${setters.join(' and ')} set forbidden securityContext.seLinuxOptions: ${data.join('; ')}`,
    );
  },
  (pod) => {
    const unconfined = (object: unknown) =>
      textAt(securityOf(object), 'seccompProfile', 'type') === 'Unconfined';
    const found = pod.containers.filter(unconfined);
    const parts = [
      ...(unconfined(pod.spec) ? ['pod'] : []),
      ...(found.length > 0 ? [containersText(found)] : []),
    ];
    return parts.length > 0
      ? violation(
          'seccompProfile',
          `${parts.join(' and ')} must not set securityContext.seccompProfile.type to "Unconfined"`,
        )
      : null;
  },
  ({ spec }) => {
    const found = listAt(securityOf(spec), 'sysctls')
      .map(({ name }) => String(name))
      .filter((name) => !SAFE_SYSCTLS.has(name));
    return found.length > 0 ? violation('forbidden sysctls', found.join(', ')) : null;
  },
  (pod) => {
    const isBad = (object: unknown) => at(securityOf(object), 'windowsOptions', 'hostProcess') === true;
    const found = pod.containers.filter(isBad);
    const setters = [
      ...(isBad(pod.spec) ? ['pod'] : []),
      ...(found.length > 0 ? [containersText(found)] : []),
    ];
    return setters.length > 0
      ? violation(
          'hostProcess',
          `${setters.join(' and ')} must not set securityContext.windowsOptions.hostProcess=true`,
        )
      : null;
  },
];

/** The controls of the level "restricted" that "baseline" does not have. */
const ONLY_RESTRICTED: readonly Check[] = [
  (pod) =>
    isWindows(pod)
      ? null
      : offenders(
          pod,
          (container) => securityOf(container)['allowPrivilegeEscalation'] !== false,
          (found) =>
            violation(
              'allowPrivilegeEscalation != false',
              `${containersText(found)} must set securityContext.allowPrivilegeEscalation=false`,
            ),
        ),
  (pod) => {
    if (isWindows(pod)) return null;
    const undropped = pod.containers.filter((container) => !capabilities(container, 'drop').includes('ALL'));
    const other = (container: JsonObject) =>
      capabilities(container, 'add').filter((one) => one !== 'NET_BIND_SERVICE');
    const adding = pod.containers.filter((container) => other(container).length > 0);
    const details = [
      ...(undropped.length > 0
        ? [`${containersText(undropped)} must set securityContext.capabilities.drop=["ALL"]`]
        : []),
      ...(adding.length > 0
        ? [
            `${containersText(adding)} must not include ${quoted([...new Set(adding.flatMap(other))].sort())} in securityContext.capabilities.add`,
          ]
        : []),
    ];
    return details.length > 0 ? violation('unrestricted capabilities', details.join('; ')) : null;
  },
  ({ spec }) => {
    const typeOf = (volume: JsonObject) =>
      Object.keys(volume).find((field) => field !== 'name' && volume[field] !== undefined) ?? 'emptyDir';
    const found = listAt(spec, 'volumes').filter((volume) => !RESTRICTED_VOLUMES.has(typeOf(volume)));
    if (found.length === 0) return null;
    const types = [...new Set(found.map(typeOf))].sort();
    return violation(
      'restricted volume types',
      `${plural(found.length, 'volume')} ${names(found)} ${found.length === 1 ? 'uses' : 'use'} restricted volume ${plural(types.length, 'type')} ${quoted(types)}`,
    );
  },
  (pod) => {
    const ofPod = securityOf(pod.spec)['runAsNonRoot'];
    const explicit = pod.containers.filter((container) => securityOf(container)['runAsNonRoot'] === false);
    const unset =
      ofPod === true
        ? []
        : pod.containers.filter((container) => securityOf(container)['runAsNonRoot'] === undefined);
    const setters = [
      ...(ofPod === false ? ['pod'] : []),
      ...(explicit.length > 0 ? [containersText(explicit)] : []),
    ];
    if (setters.length > 0)
      return violation(
        'runAsNonRoot != true',
        `${setters.join(' and ')} must not set securityContext.runAsNonRoot=false`,
      );
    return unset.length > 0
      ? violation(
          'runAsNonRoot != true',
          `pod or ${containersText(unset)} must set securityContext.runAsNonRoot=true`,
        )
      : null;
  },
  (pod) => {
    const isRoot = (object: unknown) => securityOf(object)['runAsUser'] === 0;
    const found = pod.containers.filter(isRoot);
    const setters = [
      ...(isRoot(pod.spec) ? ['pod'] : []),
      ...(found.length > 0 ? [containersText(found)] : []),
    ];
    return setters.length > 0
      ? violation('runAsUser=0', `${setters.join(' and ')} must not set runAsUser=0`)
      : null;
  },
  (pod) => {
    if (isWindows(pod)) return null;
    const type = (object: unknown) => textAt(securityOf(object), 'seccompProfile', 'type');
    const valid = (text: string) => text === 'RuntimeDefault' || text === 'Localhost';
    const unset = valid(type(pod.spec)) ? [] : pod.containers.filter((container) => type(container) === '');
    return unset.length > 0
      ? violation(
          'seccompProfile',
          `pod or ${containersText(unset)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"`,
        )
      : null;
  },
];

export const RESTRICTED: readonly Check[] = [...BASELINE, ...ONLY_RESTRICTED];

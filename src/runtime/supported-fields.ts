import type { Pod } from '../kube/types.ts';

/** What of a value is known: all of it, an object's fields, or a list's items. */
type Shape = 'any' | { readonly [field: string]: Shape } | readonly [Shape];

const any = (names: string): Record<string, Shape> =>
  Object.fromEntries(names.split(' ').map((name) => [name, 'any']));

const ACTION = {
  exec: any('command'),
  httpGet: any('path port host scheme httpHeaders'),
  tcpSocket: any('port host'),
} as const;
const HOOK = { ...ACTION, sleep: any('seconds') };
const PROBE = {
  ...ACTION,
  grpc: any('port service'),
  ...any(
    'initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds',
  ),
};
const PROFILE = any('type');
const CONTAINER_SECURITY = {
  ...any(
    'allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser',
  ),
  capabilities: any('add drop'),
  seccompProfile: PROFILE,
  appArmorProfile: PROFILE,
};
const COMMON_CONTAINER: Record<string, Shape> = {
  ...any(
    'args command image imagePullPolicy name stdin stdinOnce terminationMessagePath terminationMessagePolicy tty',
  ),
  ...any('workingDir'),
  env: [{ ...any('name value'), valueFrom: any('fieldRef resourceFieldRef configMapKeyRef secretKeyRef') }],
  envFrom: [any('prefix configMapRef secretRef')],
  ports: [any('name containerPort hostPort hostIP protocol')],
  // Requests are the scheduler's.
  resources: { requests: 'any', limits: any('cpu memory ephemeral-storage') },
  securityContext: CONTAINER_SECURITY,
  volumeMounts: [any('name mountPath mountPropagation readOnly recursiveReadOnly subPath subPathExpr')],
};
const CONTAINER: Record<string, Shape> = {
  ...COMMON_CONTAINER,
  lifecycle: { postStart: HOOK, preStop: HOOK, stopSignal: 'any' },
  livenessProbe: PROBE,
  readinessProbe: PROBE,
  startupProbe: PROBE,
};
const VOLUME: Record<string, Shape> = {
  name: 'any',
  emptyDir: any('medium sizeLimit'),
  configMap: any('name items optional defaultMode'),
  secret: any('secretName items optional defaultMode'),
  downwardAPI: any('items defaultMode'),
  hostPath: any('path type'),
  persistentVolumeClaim: any('claimName readOnly'),
  ephemeral: any('volumeClaimTemplate'),
  projected: {
    defaultMode: 'any',
    sources: [
      {
        configMap: any('name items optional'),
        secret: any('name items optional'),
        downwardAPI: any('items'),
        serviceAccountToken: any('audience expirationSeconds path'),
      },
    ],
  },
};
/** Fields of a pod's spec that this runtime carries out, or that others do (the scheduler, the API server). */
const SPEC: Record<string, Shape> = {
  ...any(
    'activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks',
  ),
  ...any(
    'hostAliases hostIPC hostNetwork hostPID hostUsers hostname imagePullSecrets nodeName nodeSelector os',
  ),
  ...any('overhead preemptionPolicy priority priorityClassName readinessGates restartPolicy schedulerName'),
  ...any('schedulingGates serviceAccount serviceAccountName setHostnameAsFQDN subdomain'),
  ...any('terminationGracePeriodSeconds tolerations topologySpreadConstraints'),
  containers: [CONTAINER],
  initContainers: [{ ...CONTAINER, restartPolicy: 'any' }],
  ephemeralContainers: [{ ...COMMON_CONTAINER, targetContainerName: 'any' }],
  securityContext: {
    ...any('runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy supplementalGroups sysctls'),
    ...any('supplementalGroupsPolicy'),
    seccompProfile: PROFILE,
    appArmorProfile: PROFILE,
  },
  volumes: [VOLUME],
};

/** Kinds of volumes that work here. */
export const VOLUME_KINDS = Object.keys(VOLUME).filter((kind) => kind !== 'name');

/** Kernel settings that a pod has for itself; others are the whole machine's (namespaces(7)). */
const POD_SYSCTL = /^(net\.|kernel\.(shm|msg|sem)|fs\.mqueue\.)/;

/** Settings that are known by one value only: whether it is carried out. */
const SETTINGS: readonly (readonly [
  field: RegExp,
  supported: (value: unknown, spec: Pod['spec']) => boolean,
])[] = [
  [/^spec\.os\.name$/, (value) => value === 'linux'],
  // A user namespace of the pod's own.
  [/^spec\.hostUsers$/, (value) => value === true],
  [/\.seccompProfile\.type$/, (value) => value === 'Unconfined' || value === 'RuntimeDefault'],
  [/\.appArmorProfile\.type$/, (value) => value === 'Unconfined'],
  [/^spec\.volumes\[\d+\]\.emptyDir\.medium$/, (value) => value === '' || value === 'Memory'],
  [/^spec\.initContainers\[\d+\]\.restartPolicy$/, (value) => value === 'Always'],
  // These would be the whole machine's.
  [
    /^spec\.securityContext\.sysctls\[\d+\]\.name$/,
    (value, spec) =>
      POD_SYSCTL.test(String(value)) && !(spec?.hostNetwork && String(value).startsWith('net.')),
  ],
];

/** The fields of a pod that cannot be carried out here, by their paths: such a pod is refused, not run half. */
export function unsupportedFields(pod: Pod): string[] {
  const { ephemeralContainers: _, ...spec } = (pod.spec ?? {}) as Record<string, unknown>;
  return [...unknownFields(spec, SPEC, 'spec'), ...badSettings(spec, 'spec', pod.spec)];
}

/** The same of one ephemeral container, whose pod runs already. */
export function unsupportedInContainer(container: object): string[] {
  const path = 'spec.ephemeralContainers[0]';
  const list = { ephemeralContainers: [container] };
  return [...unknownFields(list, SPEC, 'spec'), ...badSettings(list, 'spec', undefined)].map(
    (problem) => problem.slice(path.length + 1) || problem,
  );
}

/** Fields that say something (false, empty lists and objects do not) and are not known. */
function unknownFields(value: unknown, shape: Shape, path: string): string[] {
  if (shape === 'any' || typeof value !== 'object' || value === null) return [];
  if (Array.isArray(shape)) {
    const items = Array.isArray(value) ? value : [];
    return items.flatMap((item, i) => unknownFields(item, shape[0] as Shape, `${path}[${i}]`));
  }
  const fields = shape as { readonly [field: string]: Shape };
  return Object.entries(value).flatMap(([field, setting]) => {
    const known = fields[field];
    if (known !== undefined) return unknownFields(setting, known, `${path}.${field}`);
    return says(setting) ? [`${path}.${field}`] : [];
  });
}

function badSettings(value: unknown, path: string, spec: Pod['spec']): string[] {
  if (typeof value === 'object' && value !== null) {
    const isList = Array.isArray(value);
    return Object.entries(value).flatMap(([key, item]) =>
      badSettings(item, isList ? `${path}[${key}]` : `${path}.${key}`, spec),
    );
  }
  const rule = SETTINGS.find(([field]) => field.test(path));
  return value === undefined || value === null || !rule || rule[1](value, spec) ? [] : [`${path}=${value}`];
}

function says(setting: unknown): boolean {
  if (setting === undefined || setting === null || setting === false || setting === '') return false;
  return typeof setting !== 'object' || Object.keys(setting).length > 0;
}

import { isExtendedResource } from '../kube/extended-resources.ts';
import type { Pod } from '../kube/types.ts';
import { ownMember } from '../lib/own-member.ts';

/** The supported part of a value: all of it, an object's fields, or a list's items. */
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
const PROFILE = any('type localhostProfile');
/** Ignored as in upstream's kubelet: SELinux labels on a node without SELinux, Windows' options on Linux. */
const IGNORED_SECURITY = any('seLinuxOptions windowsOptions');
const CONTAINER_SECURITY = {
  ...any(
    'allowPrivilegeEscalation privileged procMount readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser',
  ),
  ...IGNORED_SECURITY,
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
  // Requests concern the scheduler.
  resources: { requests: 'any', limits: any('cpu memory ephemeral-storage') },
  resizePolicy: 'any',
  securityContext: CONTAINER_SECURITY,
  volumeMounts: [any('name mountPath mountPropagation readOnly recursiveReadOnly subPath subPathExpr')],
};
const CONTAINER: Record<string, Shape> = {
  ...COMMON_CONTAINER,
  restartPolicy: 'any',
  restartPolicyRules: [{ action: 'any', exitCodes: any('operator values') }],
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
  image: any('reference pullPolicy'),
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
/** Fields of a pod's spec that this runtime implements, or other components do (scheduler, API server). */
const SPEC: Record<string, Shape> = {
  ...any(
    'activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks',
  ),
  ...any(
    'hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets nodeName nodeSelector os',
  ),
  ...any(
    'overhead preemptionPolicy priority priorityClassName readinessGates restartPolicy runtimeClassName schedulerName',
  ),
  ...any(
    'schedulingGates serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain',
  ),
  ...any('terminationGracePeriodSeconds tolerations topologySpreadConstraints'),
  containers: [CONTAINER],
  initContainers: [CONTAINER],
  ephemeralContainers: [{ ...COMMON_CONTAINER, targetContainerName: 'any' }],
  securityContext: {
    ...any('runAsUser runAsGroup runAsNonRoot fsGroup fsGroupChangePolicy supplementalGroups sysctls'),
    ...any('supplementalGroupsPolicy seLinuxChangePolicy'),
    ...IGNORED_SECURITY,
    seccompProfile: PROFILE,
    appArmorProfile: PROFILE,
  },
  volumes: [VOLUME],
};

/** Kinds of volumes that are supported. */
export const VOLUME_KINDS = Object.keys(VOLUME).filter((kind) => kind !== 'name');

/** Kernel settings that are separate for each pod; others apply to the whole machine (namespaces(7)). */
const POD_SYSCTL = /^(net\.|kernel\.(shm|msg|sem)|fs\.mqueue\.)/;

/** The path of a container's limit of one resource. */
const LIMIT = /^spec\.(?:initContainers|containers)\[\d+\]\.resources\.limits\.(.+)$/;

/** Fields of which only some values are supported. */
const SETTINGS: readonly (readonly [
  field: RegExp,
  supported: (value: unknown, spec: Pod['spec']) => boolean,
])[] = [
  [/^spec\.os\.name$/, (value) => value === 'linux'],
  // A separate user namespace for the pod.
  [/^spec\.hostUsers$/, (value) => value === true],
  [
    /\.seccompProfile\.type$/,
    (value) => ['Unconfined', 'RuntimeDefault', 'Localhost'].includes(String(value)),
  ],
  [/\.appArmorProfile\.type$/, (value) => value === 'Unconfined'],
  [/^spec\.volumes\[\d+\]\.emptyDir\.medium$/, (value) => value === '' || value === 'Memory'],
  [/\.restartPolicyRules\[\d+\]\.action$/, (value) => value === 'Restart'],
  // Other settings apply to the whole machine.
  [
    /^spec\.securityContext\.sysctls\[\d+\]\.name$/,
    (value, spec) =>
      POD_SYSCTL.test(String(value)) && !(spec?.hostNetwork && String(value).startsWith('net.')),
  ],
];

/**
 * Returns the paths of a pod's fields that this node does not support: such a pod is not started. `offers` reports
 * whether the node has a resource.
 */
export function unsupportedFields(pod: Pod, offers: (resource: string) => boolean = () => false): string[] {
  const { ephemeralContainers: _, ...spec } = (pod.spec ?? {}) as Record<string, unknown>;
  const isOffered = (path: string) => {
    const resource = LIMIT.exec(path)?.[1];
    return resource !== undefined && isExtendedResource(resource) && offers(resource);
  };
  return [
    ...unknownFields(spec, SPEC, 'spec').filter((path) => !isOffered(path)),
    ...badSettings(spec, 'spec', pod.spec),
  ];
}

/** Returns the unsupported fields of one ephemeral container, whose pod already runs. */
export function unsupportedInContainer(container: object): string[] {
  const path = 'spec.ephemeralContainers[0]';
  const list = { ephemeralContainers: [container] };
  return [...unknownFields(list, SPEC, 'spec'), ...badSettings(list, 'spec', undefined)].map(
    (problem) => problem.slice(path.length + 1) || problem,
  );
}

/** Returns unknown fields with a meaningful value (not false, or empty lists and objects). */
function unknownFields(value: unknown, shape: Shape, path: string): string[] {
  if (shape === 'any' || typeof value !== 'object' || value === null) return [];
  if (Array.isArray(shape)) {
    const items = Array.isArray(value) ? value : [];
    return items.flatMap((item, i) => unknownFields(item, shape[0] as Shape, `${path}[${i}]`));
  }
  const fields = shape as { readonly [field: string]: Shape };
  return Object.entries(value).flatMap(([field, setting]) => {
    const known = ownMember(fields, field);
    if (known !== undefined) return unknownFields(setting, known, `${path}.${field}`);
    return isSet(setting) ? [`${path}.${field}`] : [];
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

function isSet(setting: unknown): boolean {
  if (setting === undefined || setting === null || setting === false || setting === '') return false;
  return typeof setting !== 'object' || Object.keys(setting).length > 0;
}

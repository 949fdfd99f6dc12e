import { at, type JsonObject } from '../object.ts';

const OLD_ANNOTATIONS: Readonly<Record<string, string>> = {
  'scheduler.alpha.kubernetes.io/critical-pod': 'in v1.16+; use the "priorityClassName" field instead',
  'security.alpha.kubernetes.io/sysctls': 'in v1.11+; use the "sysctls" field instead',
  'security.alpha.kubernetes.io/unsafe-sysctls': 'in v1.11+; use the "sysctls" field instead',
};
const SECCOMP = 'in v1.27+; use the "seccompProfile" field instead';
const SECCOMP_POD = 'seccomp.security.alpha.kubernetes.io/pod';
const SECCOMP_CONTAINER = 'container.seccomp.security.alpha.kubernetes.io/';
const APPARMOR = 'container.apparmor.security.beta.kubernetes.io/';

/** Warns of a pod's annotations that fields have replaced; `path` is that of its metadata. */
export function annotationWarnings(
  annotations: Readonly<Record<string, unknown>>,
  spec: JsonObject,
  containers: readonly JsonObject[],
  path: string,
): string[] {
  const warn = (key: string, text: string) =>
    annotations[key] === undefined ? [] : [`${path}.annotations[${key}]: ${text}`];
  const hasProfile = (one: unknown, field: string) => at(one, 'securityContext', field) !== undefined;
  return [
    ...Object.entries(OLD_ANNOTATIONS).flatMap(([key, text]) => warn(key, `non-functional ${text}`)),
    ...(hasProfile(spec, 'seccompProfile') ? [] : warn(SECCOMP_POD, `non-functional ${SECCOMP}`)),
    ...containers.flatMap((container) => [
      ...(hasProfile(container, 'seccompProfile')
        ? []
        : warn(SECCOMP_CONTAINER + container['name'], `non-functional ${SECCOMP}`)),
      ...(hasProfile(spec, 'appArmorProfile') || hasProfile(container, 'appArmorProfile')
        ? []
        : warn(
            APPARMOR + container['name'],
            'deprecated since v1.30; use the "appArmorProfile" field instead',
          )),
    ]),
  ];
}

/** v1, v1beta2, v2alpha1: the names of Kubernetes' API versions. */
const KUBE_VERSION = /^v([0-9]+)(?:(alpha|beta)([0-9]+))?$/;
const STABILITY = { alpha: 0, beta: 1, stable: 2 } as const;

/**
 * Compares two versions of an API group; the preferred one comes first: stable before beta before alpha, then the
 * higher number (upstream's CompareKubeAwareVersionStrings). Other names come last, in alphabetical order.
 */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [rank(a), rank(b)];
  if (!left || !right) return Number(left === null) - Number(right === null) || (a < b ? -1 : Number(a > b));
  return right.stability - left.stability || right.major - left.major || right.minor - left.minor;
}

function rank(version: string) {
  const match = KUBE_VERSION.exec(version);
  if (!match) return null;
  const stability = STABILITY[(match[2] ?? 'stable') as keyof typeof STABILITY];
  return { stability, major: Number(match[1]), minor: Number(match[3] ?? 0) };
}

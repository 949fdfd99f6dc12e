import { parseQuantity } from '../kube/quantity.ts';
import type { Container } from '../kube/types.ts';

type Resources = Container['resources'];

const CPU_PERIOD = 100_000;
/** The kernel's minimum quota, in microseconds. */
const MIN_QUOTA = 1000;
const MIN_SHARES = 2;

/** Returns a container's limits for the OCI runtime (LinuxResources), for the available controllers. */
export function containerResources({ resources }: Container, controllers: ReadonlySet<string>): object {
  const amount = (kind: 'limits' | 'requests', name: string) =>
    parseQuantity(String(resources?.[kind]?.[name] ?? ''));
  const cpuLimit = amount('limits', 'cpu');
  const requested = amount('requests', 'cpu');
  const cpuRequest = Number.isFinite(requested) ? requested : cpuLimit;
  const memory = amount('limits', 'memory');
  const cpu = {
    ...(Number.isFinite(cpuLimit)
      ? { quota: Math.max(MIN_QUOTA, Math.round(cpuLimit * CPU_PERIOD)), period: CPU_PERIOD }
      : {}),
    ...(Number.isFinite(cpuRequest) ? { shares: Math.max(MIN_SHARES, Math.round(cpuRequest * 1024)) } : {}),
  };
  return {
    ...(controllers.has('cpu') && Object.keys(cpu).length > 0 ? { cpu } : {}),
    ...(controllers.has('memory') && Number.isFinite(memory)
      ? { memory: { limit: Math.round(memory) } }
      : {}),
  };
}

/** Returns the resources that differ between two definitions of a container: "cpu", "memory". */
export function changedResources(before: Resources, after: Resources): string[] {
  return ['cpu', 'memory'].filter((name) =>
    (['limits', 'requests'] as const).some(
      (kind) =>
        parseQuantity(String(before?.[kind]?.[name] ?? '0')) !==
        parseQuantity(String(after?.[kind]?.[name] ?? '0')),
    ),
  );
}

/** Returns how a newer definition is applied to a container that runs: resources by its resizePolicy. */
export function changeOf(
  current: { readonly image: string; readonly resources: Resources },
  { image, resources, resizePolicy }: Container,
): 'none' | 'resize' | 'restart' {
  if (image !== current.image) return 'restart';
  const changed = changedResources(current.resources, resources);
  if (changed.length === 0) return 'none';
  const needsRestart = (name: string) =>
    resizePolicy?.some((one) => one.resourceName === name && one.restartPolicy === 'RestartContainer');
  return changed.some(needsRestart) ? 'restart' : 'resize';
}

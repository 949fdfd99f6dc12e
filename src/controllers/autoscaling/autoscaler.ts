import { parseQuantity } from '../../kube/quantity.ts';
import { type HorizontalPodAutoscaler, keyOf, type Pod, RESOURCES, splitKey } from '../../kube/types.ts';
import { errorOf, FairleadError, messageOf } from '../../lib/errors.ts';
import { same } from '../canonical.ts';
import { type ControllerContext, controllerQueue, recorderFor } from '../context.ts';
import { servedKinds } from '../discovery.ts';
import type { ScalingHistory } from './behavior.ts';
import type { PodUsage } from './metrics.ts';
import { reconcileAutoscaler } from './reconcile.ts';

/** Interval between evaluations of the metrics (upstream's --horizontal-pod-autoscaler-sync-period). */
const PERIOD_MS = 15_000;
/** The longest stabilization window and policy period. */
const MEMORY_MS = 3_600_000;

interface Scale {
  readonly metadata?: { readonly resourceVersion?: string };
  readonly spec?: { readonly replicas?: number };
  readonly status?: { readonly replicas?: number; readonly selector?: string };
}
interface PodMetricsList {
  readonly items?: readonly {
    readonly metadata?: { readonly name?: string };
    readonly timestamp?: string;
    readonly containers?: readonly {
      readonly name: string;
      readonly usage: Readonly<Record<string, string>>;
    }[];
  }[];
}

/** Reads the usage of pods, by resource and pod. */
async function usageOf({ client, signal }: ControllerContext, namespace: string, selector: string) {
  const query = `labelSelector=${encodeURIComponent(selector)}`;
  const path = `/apis/metrics.k8s.io/v1beta1/namespaces/${namespace}/pods?${query}`;
  const list = (await client.request('GET', path, undefined, { signal })) as PodMetricsList;
  const usage = new Map<string, Map<string, PodUsage>>();
  for (const { metadata, timestamp, containers = [] } of list.items ?? []) {
    for (const resource of ['cpu', 'memory']) {
      const amounts = containers.map(
        ({ name, usage }) => [name, parseQuantity(usage[resource] ?? '0')] as const,
      );
      const byPod = usage.get(resource) ?? new Map<string, PodUsage>();
      byPod.set(metadata?.name ?? '', { at: Date.parse(timestamp ?? ''), containers: new Map(amounts) });
      usage.set(resource, byPod);
    }
  }
  return usage;
}

/** Scales workloads by the usage of their pods. */
export function startAutoscalers(context: ControllerContext): void {
  const { caches, client, clock, signal } = context;
  const { horizontalPodAutoscalers: autoscalers } = caches;
  const events = recorderFor(context, 'horizontal-pod-autoscaler');
  const histories = new Map<string, ScalingHistory>();

  const scalePath = async ({ metadata, spec }: HorizontalPodAutoscaler): Promise<string> => {
    const { apiVersion = 'v1', kind = '', name = '' } = spec?.scaleTargetRef ?? {};
    const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
    const found = (await servedKinds(client, signal, 'skip')).find(
      (one) => one.group === group && one.kind === kind,
    );
    if (!found) {
      const hint = 'correct spec.scaleTargetRef, or create the CustomResourceDefinition of the kind';
      const message = `no matches for kind "${kind}" in group "${group}"`;
      throw new FairleadError(message, { op: 'scale workload', code: 'bad-config', hint });
    }
    const root = group === '' ? `/api/${version}` : `/apis/${group}/${version}`;
    return `${root}/namespaces/${metadata?.namespace}/${found.plural}/${name}/scale`;
  };
  const writeStatus = async (
    autoscaler: HorizontalPodAutoscaler,
    status: HorizontalPodAutoscaler['status'],
  ) => {
    if (status && !same(status, autoscaler.status)) await autoscalers.updateStatus({ ...autoscaler, status });
  };
  const warn = (autoscaler: HorizontalPodAutoscaler, reason: string, message: string) =>
    events.event(autoscaler, 'Warning', reason, message, RESOURCES.horizontalPodAutoscalers);

  const queue = controllerQueue(context, 'autoscaler', async (key) => {
    const { namespace, name } = splitKey(key);
    const autoscaler = autoscalers.get(namespace, name);
    const uid = autoscaler?.metadata?.uid ?? '';
    if (!autoscaler || autoscaler.metadata?.deletionTimestamp !== undefined) return;
    queue.addAfter(key, PERIOD_MS);
    let path: string;
    let scale: Scale;
    try {
      path = await scalePath(autoscaler);
      scale = (await client.request('GET', path, undefined, { signal })) as Scale;
    } catch (error) {
      const message = `the HPA controller was unable to get the target's current scale: ${messageOf(error)}`;
      warn(autoscaler, 'FailedGetScale', messageOf(error));
      const view = {
        autoscaler,
        current: 0,
        pods: [],
        usage: new Map(),
        history: NO_HISTORY,
        now: clock.now(),
      };
      const { status } = reconcileAutoscaler(view);
      const conditions = (status.conditions ?? []).filter(({ type }) => type === 'AbleToScale');
      const failed = conditions.map((one) => ({
        ...one,
        status: 'False',
        reason: 'FailedGetScale',
        message,
      }));
      await writeStatus(autoscaler, { ...autoscaler.status, desiredReplicas: 0, conditions: failed });
      return;
    }
    const selector = scale.status?.selector ?? '';
    const now = clock.now();
    const pods = await client.list<Pod>(RESOURCES.pods, { namespace, labelSelector: selector, signal });
    const usage = await usageOf(context, namespace, selector).catch(errorOf);
    const current = scale.spec?.replicas ?? 0;
    const history = histories.get(uid) ?? NO_HISTORY;
    const plan = reconcileAutoscaler({ autoscaler, current, pods: pods.items, usage, history, now });
    for (const { reason, message } of plan.warnings) warn(autoscaler, reason, message);
    if (plan.scaleTo !== null) {
      try {
        await client.request('PUT', path, { ...scale, spec: { replicas: plan.scaleTo } }, { signal });
      } catch (error) {
        warn(
          autoscaler,
          'FailedRescale',
          `New size: ${plan.scaleTo}; reason: ${plan.reason}; error: ${messageOf(error)}`,
        );
        throw error;
      }
      const message = `New size: ${plan.scaleTo}; reason: ${plan.reason}`;
      events.event(autoscaler, 'Normal', 'SuccessfulRescale', message, RESOURCES.horizontalPodAutoscalers);
    }
    const recent = ({ at }: { at: number }) => at > now - MEMORY_MS;
    histories.set(uid, {
      recommendations: [
        ...history.recommendations.filter(recent),
        ...(plan.recommendation === null ? [] : [{ at: now, replicas: plan.recommendation }]),
      ],
      changes: [
        ...history.changes.filter(recent),
        ...(plan.scaleTo === null ? [] : [{ at: now, by: plan.scaleTo - current }]),
      ],
    });
    await writeStatus(autoscaler, plan.status);
  });
  autoscalers.informer.handle({
    onAdd: (autoscaler) => queue.add(keyOf(autoscaler)),
    onUpdate(autoscaler, before) {
      if (autoscaler.metadata?.generation !== before.metadata?.generation) queue.add(keyOf(autoscaler));
    },
    onDelete: ({ metadata }) => {
      histories.delete(metadata?.uid ?? '');
    },
  });
}

const NO_HISTORY: ScalingHistory = { recommendations: [], changes: [] };

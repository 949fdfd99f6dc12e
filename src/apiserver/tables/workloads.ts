import { type ApiObject, at, listAt, textAt } from '../object.ts';
import { humanDuration } from './human-duration.ts';
import {
  columns,
  containerCells,
  countAt,
  labelsText,
  type Printer,
  selectorText,
  since,
} from './printer.ts';

/** Returns containers, images and selector, which `-o wide` adds to workloads. */
function wideCells(object: ApiObject): string[] {
  return [
    ...containerCells(listAt(object, 'spec', 'template', 'spec', 'containers')),
    selectorText(at(object, 'spec', 'selector')),
  ];
}

const status = (object: ApiObject, field: string) => countAt(at(object, 'status', field));
const replicas = (object: ApiObject) => countAt(at(object, 'spec', 'replicas'));

export const deploymentPrinter: Printer = {
  columns: columns('Name; Ready; Up-to-date; Available; Age; Containers|; Images|; Selector|'),
  cells: (deployment, now) => [
    deployment.metadata.name,
    `${status(deployment, 'readyReplicas')}/${replicas(deployment)}`,
    status(deployment, 'updatedReplicas'),
    status(deployment, 'availableReplicas'),
    since(deployment.metadata.creationTimestamp, now),
    ...wideCells(deployment),
  ],
};

export const replicaSetPrinter: Printer = {
  columns: columns(
    'Name; Desired:integer; Current:integer; Ready:integer; Age; Containers|; Images|; Selector|',
  ),
  cells: (set, now) => [
    set.metadata.name,
    replicas(set),
    status(set, 'replicas'),
    status(set, 'readyReplicas'),
    since(set.metadata.creationTimestamp, now),
    ...wideCells(set),
  ],
};

export const replicationControllerPrinter: Printer = {
  columns: replicaSetPrinter.columns,
  cells: (controller, now) => [
    ...replicaSetPrinter.cells(controller, now).slice(0, 7),
    labelsText(at(controller, 'spec', 'selector')),
  ],
};

export const statefulSetPrinter: Printer = {
  columns: columns('Name; Ready; Age; Containers|; Images|'),
  cells: (set, now) => [
    set.metadata.name,
    `${status(set, 'readyReplicas')}/${replicas(set)}`,
    since(set.metadata.creationTimestamp, now),
    ...wideCells(set).slice(0, 2),
  ],
};

export const daemonSetPrinter: Printer = {
  columns: columns(
    'Name; Desired:integer; Current:integer; Ready:integer; Up-to-date:integer; Available:integer; Node Selector; Age; Containers|; Images|; Selector|',
  ),
  cells: (set, now) => [
    set.metadata.name,
    status(set, 'desiredNumberScheduled'),
    status(set, 'currentNumberScheduled'),
    status(set, 'numberReady'),
    status(set, 'updatedNumberScheduled'),
    status(set, 'numberAvailable'),
    labelsText(at(set, 'spec', 'template', 'spec', 'nodeSelector')),
    since(set.metadata.creationTimestamp, now),
    ...wideCells(set),
  ],
};

export const jobPrinter: Printer = {
  columns: columns('Name; Status; Completions; Duration; Age; Containers|; Images|; Selector|'),
  cells(job, now) {
    const wanted = at(job, 'spec', 'completions');
    const parallel = countAt(at(job, 'spec', 'parallelism'));
    const done = status(job, 'succeeded');
    const started = textAt(job, 'status', 'startTime');
    const ended = textAt(job, 'status', 'completionTime');
    return [
      job.metadata.name,
      jobStatus(job),
      typeof wanted === 'number' ? `${done}/${wanted}` : `${done}/1${parallel > 1 ? ` of ${parallel}` : ''}`,
      started === ''
        ? ''
        : humanDuration((ended === '' ? now.getTime() : Date.parse(ended)) - Date.parse(started)),
      since(job.metadata.creationTimestamp, now),
      ...wideCells(job),
    ];
  },
};

function jobStatus(job: ApiObject): string {
  const conditions = listAt(job, 'status', 'conditions');
  const has = (type: string) => conditions.some((one) => one['type'] === type && one['status'] === 'True');
  if (has('Complete')) return 'Complete';
  if (has('Failed')) return 'Failed';
  if (job.metadata.deletionTimestamp) return 'Terminating';
  if (has('Suspended')) return 'Suspended';
  return has('FailureTarget') ? 'FailureTarget' : 'Running';
}

export const cronJobPrinter: Printer = {
  columns: columns(
    'Name; Schedule; Timezone; Suspend:boolean; Active:integer; Last Schedule; Age; Containers|; Images|; Selector|',
  ),
  cells(job, now) {
    const suspended = at(job, 'spec', 'suspend');
    const last = textAt(job, 'status', 'lastScheduleTime');
    const template = at(job, 'spec', 'jobTemplate', 'spec');
    return [
      job.metadata.name,
      textAt(job, 'spec', 'schedule'),
      textAt(job, 'spec', 'timeZone') || '<none>',
      typeof suspended !== 'boolean' ? '<unset>' : suspended ? 'True' : 'False',
      listAt(job, 'status', 'active').length,
      last === '' ? '<none>' : since(last, now),
      since(job.metadata.creationTimestamp, now),
      ...containerCells(listAt(template, 'template', 'spec', 'containers')),
      selectorText(at(template, 'selector')),
    ];
  },
};

export const podTemplatePrinter: Printer = {
  columns: columns('Name; Containers; Images; Pod Labels'),
  cells: (template) => [
    template.metadata.name,
    ...containerCells(listAt(template, 'template', 'spec', 'containers')),
    labelsText(at(template, 'template', 'metadata', 'labels')),
  ],
};

export const controllerRevisionPrinter: Printer = {
  columns: columns('Name; Controller; Revision; Age'),
  cells(revision, now) {
    const owner = revision.metadata.ownerReferences?.find((one) => one.controller);
    const group = owner?.apiVersion.includes('/') ? `.${owner.apiVersion.split('/')[0]}` : '';
    return [
      revision.metadata.name,
      owner ? `${owner.kind.toLowerCase()}${group}/${owner.name}` : '<none>',
      countAt(revision['revision']),
      since(revision.metadata.creationTimestamp, now),
    ];
  },
};

export const disruptionBudgetPrinter: Printer = {
  columns: columns('Name; Min Available; Max Unavailable; Allowed Disruptions:integer; Age'),
  cells: (budget, now) => [
    budget.metadata.name,
    String(at(budget, 'spec', 'minAvailable') ?? 'N/A'),
    String(at(budget, 'spec', 'maxUnavailable') ?? 'N/A'),
    status(budget, 'disruptionsAllowed'),
    since(budget.metadata.creationTimestamp, now),
  ],
};

export const autoscalerPrinter: Printer = {
  columns: columns('Name; Reference; Targets; MinPods; MaxPods; Replicas; Age'),
  cells: (autoscaler, now) => [
    autoscaler.metadata.name,
    `${textAt(autoscaler, 'spec', 'scaleTargetRef', 'kind')}/${textAt(autoscaler, 'spec', 'scaleTargetRef', 'name')}`,
    autoscalerTargets(autoscaler),
    String(at(autoscaler, 'spec', 'minReplicas') ?? '<unset>'),
    countAt(at(autoscaler, 'spec', 'maxReplicas')),
    status(autoscaler, 'currentReplicas'),
    since(autoscaler.metadata.creationTimestamp, now),
  ],
};

const METRIC_SOURCES: Readonly<Record<string, string>> = {
  Resource: 'resource',
  ContainerResource: 'containerResource',
  Pods: 'pods',
  Object: 'object',
  External: 'external',
};

/** Formats "cpu: 20%/50%, 3/10 (avg)": current and target value of each metric, at most two. */
function autoscalerTargets(autoscaler: ApiObject): string {
  const metrics = listAt(autoscaler, 'spec', 'metrics');
  if (metrics.length === 0) return '<none>';
  const currents = listAt(autoscaler, 'status', 'currentMetrics');
  const texts = metrics.map((metric, index) => {
    const source = METRIC_SOURCES[String(metric['type'])];
    if (!source) return '<unknown type>';
    const target = at(metric, source, 'target');
    const current = at(currents[index], source, 'current');
    const resource = textAt(metric, source, 'name');
    const unknown = '<unknown>';
    if (resource !== '' && source.toLowerCase().endsWith('resource')) {
      if (at(target, 'averageValue') !== undefined) {
        return `${resource}: ${at(current, 'averageValue') ?? unknown}/${at(target, 'averageValue')}`;
      }
      const percent = (value: unknown, otherwise: string) =>
        typeof value === 'number' ? `${value}%` : otherwise;
      return `${resource}: ${percent(at(current, 'averageUtilization'), unknown)}/${percent(at(target, 'averageUtilization'), '<auto>')}`;
    }
    const average = at(target, 'averageValue');
    if (source === 'pods') return `${at(current, 'averageValue') ?? unknown}/${average ?? '0'}`;
    return average !== undefined
      ? `${at(current, 'averageValue') ?? unknown}/${average} (avg)`
      : `${at(current, 'value') ?? unknown}/${at(target, 'value') ?? '0'}`;
  });
  const shown = texts.slice(0, 2).join(', ');
  return texts.length > 2 ? `${shown} + ${texts.length - 2} more...` : shown;
}

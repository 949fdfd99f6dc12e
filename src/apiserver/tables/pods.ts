import { type ApiObject, at, type JsonObject, listAt, textAt } from '../object.ts';
import { columns, countAt, type Printer, since } from './printer.ts';

export const podPrinter: Printer = {
  columns: columns('Name; Ready; Status; Restarts; Age; IP|; Node|; Nominated Node|; Readiness Gates|'),
  cells(pod, now) {
    const summary = summarize(pod);
    const restarts =
      summary.restarts > 0 && summary.lastRestart !== ''
        ? `${summary.restarts} (${since(summary.lastRestart, now)} ago)`
        : String(summary.restarts);
    return [
      pod.metadata.name,
      `${summary.ready}/${summary.total}`,
      summary.status,
      restarts,
      since(pod.metadata.creationTimestamp, now),
      textAt(listAt(pod, 'status', 'podIPs')[0], 'ip') || textAt(pod, 'status', 'podIP') || '<none>',
      textAt(pod, 'spec', 'nodeName') || '<none>',
      textAt(pod, 'status', 'nominatedNodeName') || '<none>',
      readinessGates(pod),
    ];
  },
};

interface Summary {
  status: string;
  ready: number;
  total: number;
  restarts: number;
  /** End time of the last container that was restarted; "" if none was. */
  lastRestart: string;
}

/** Computes READY, STATUS and RESTARTS of a pod: STATUS is the best explanation why it does not simply run. */
function summarize(pod: ApiObject): Summary {
  const phase = textAt(pod, 'status', 'phase');
  const reason = textAt(pod, 'status', 'reason');
  const conditions = listAt(pod, 'status', 'conditions');
  const gated = conditions.some(
    (one) => one['type'] === 'PodScheduled' && one['reason'] === 'SchedulingGated',
  );
  const sidecars = new Set(
    listAt(pod, 'spec', 'initContainers')
      .filter((container) => container['restartPolicy'] === 'Always')
      .map((container) => container['name']),
  );
  const summary: Summary = {
    status: gated ? 'SchedulingGated' : reason || phase,
    ready: 0,
    total: listAt(pod, 'spec', 'containers').length + sidecars.size,
    restarts: 0,
    lastRestart: '',
  };
  const initializing = addInitContainers(pod, sidecars, summary);
  if (!initializing || isTrue(conditions, 'Initialized')) addContainers(pod, sidecars, summary);
  if (pod.metadata.deletionTimestamp) {
    if (reason === 'NodeLost') summary.status = 'Unknown';
    else if (phase !== 'Succeeded' && phase !== 'Failed') summary.status = 'Terminating';
  }
  return summary;
}

/** Returns true while an init container has not finished; its state is then the pod's. */
function addInitContainers(pod: ApiObject, sidecars: ReadonlySet<unknown>, summary: Summary): boolean {
  const count = listAt(pod, 'spec', 'initContainers').length;
  for (const [index, status] of listAt(pod, 'status', 'initContainerStatuses').entries()) {
    addRestarts(status, summary);
    const terminated = at(status, 'state', 'terminated');
    const waiting = textAt(status, 'state', 'waiting', 'reason');
    if (terminated && countAt(at(terminated, 'exitCode')) === 0) continue;
    if (sidecars.has(status['name']) && status['started'] === true) {
      if (status['ready'] === true) summary.ready++;
      continue;
    }
    if (terminated) summary.status = `Init:${endReason(terminated)}`;
    else if (waiting !== '' && waiting !== 'PodInitializing') summary.status = `Init:${waiting}`;
    else summary.status = `Init:${index}/${count}`;
    return true;
  }
  return false;
}

function addContainers(pod: ApiObject, sidecars: ReadonlySet<unknown>, summary: Summary): void {
  // After initialization, earlier restarts do not count, except those of sidecars.
  summary.restarts = 0;
  summary.lastRestart = '';
  for (const status of listAt(pod, 'status', 'initContainerStatuses')) {
    if (sidecars.has(status['name'])) addRestarts(status, summary);
  }
  let running = false;
  for (const status of listAt(pod, 'status', 'containerStatuses').toReversed()) {
    addRestarts(status, summary);
    const waiting = textAt(status, 'state', 'waiting', 'reason');
    const terminated = at(status, 'state', 'terminated');
    if (waiting !== '') summary.status = waiting;
    else if (terminated) summary.status = endReason(terminated);
    else if (status['ready'] === true && at(status, 'state', 'running')) {
      running = true;
      summary.ready++;
    }
  }
  if (summary.status === 'Completed' && running) {
    summary.status = isTrue(listAt(pod, 'status', 'conditions'), 'Ready') ? 'Running' : 'NotReady';
  }
}

function addRestarts(status: JsonObject, summary: Summary): void {
  summary.restarts += countAt(status['restartCount']);
  const ended = textAt(status, 'lastState', 'terminated', 'finishedAt');
  if (ended !== '' && (summary.lastRestart === '' || Date.parse(ended) > Date.parse(summary.lastRestart))) {
    summary.lastRestart = ended;
  }
}

function endReason(terminated: unknown): string {
  const signal = countAt(at(terminated, 'signal'));
  return (
    textAt(terminated, 'reason') ||
    (signal === 0 ? `ExitCode:${countAt(at(terminated, 'exitCode'))}` : `Signal:${signal}`)
  );
}

function isTrue(conditions: readonly JsonObject[], type: string): boolean {
  return conditions.find((condition) => condition['type'] === type)?.['status'] === 'True';
}

function readinessGates(pod: ApiObject): string {
  const gates = listAt(pod, 'spec', 'readinessGates');
  if (gates.length === 0) return '<none>';
  const conditions = listAt(pod, 'status', 'conditions');
  const open = gates.filter((gate) => isTrue(conditions, String(gate['conditionType'])));
  return `${open.length}/${gates.length}`;
}

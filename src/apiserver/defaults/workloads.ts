import { isObject, type JsonObject, listAt } from '../object.ts';
import type { TypeDefaults } from '../schema/canonical-form.ts';
import { objectIn, setAbsent } from './core.ts';

const MAX_INT32 = 2 ** 31 - 1;
const retention = { whenDeleted: 'Retain', whenScaled: 'Retain' };

const SCALE_UP = {
  stabilizationWindowSeconds: 0,
  selectPolicy: 'Max',
  policies: [
    { type: 'Pods', value: 4, periodSeconds: 15 },
    { type: 'Percent', value: 100, periodSeconds: 15 },
  ],
};
const SCALE_DOWN = {
  selectPolicy: 'Max',
  policies: [{ type: 'Percent', value: 100, periodSeconds: 15 }],
};

/** Defaults of apps, batch and autoscaling, as upstream's SetDefaults functions give them. */
export const WORKLOAD_DEFAULTS: Readonly<Record<string, TypeDefaults>> = {
  'apps.v1.Deployment'(deployment) {
    const spec = objectIn(deployment, 'spec');
    setAbsent(spec, { replicas: 1, revisionHistoryLimit: 10, progressDeadlineSeconds: 600 });
    const strategy = objectIn(spec, 'strategy');
    strategy['type'] ||= 'RollingUpdate';
    if (strategy['type'] === 'RollingUpdate') {
      setAbsent(objectIn(strategy, 'rollingUpdate'), { maxUnavailable: '25%', maxSurge: '25%' });
    }
  },
  'apps.v1.DaemonSet'(set) {
    const spec = objectIn(set, 'spec');
    setAbsent(spec, { revisionHistoryLimit: 10 });
    const strategy = objectIn(spec, 'updateStrategy');
    strategy['type'] ||= 'RollingUpdate';
    if (strategy['type'] === 'RollingUpdate') {
      setAbsent(objectIn(strategy, 'rollingUpdate'), { maxUnavailable: 1, maxSurge: 0 });
    }
  },
  'apps.v1.StatefulSet'(set) {
    const spec = objectIn(set, 'spec');
    spec['podManagementPolicy'] ||= 'OrderedReady';
    const strategy = objectIn(spec, 'updateStrategy');
    if (!strategy['type']) {
      strategy['type'] = 'RollingUpdate';
      objectIn(strategy, 'rollingUpdate');
    }
    if (strategy['type'] === 'RollingUpdate' && isObject(strategy['rollingUpdate'])) {
      setAbsent(strategy['rollingUpdate'], { partition: 0 });
    }
    for (const claim of listAt(spec as JsonObject, 'volumeClaimTemplates')) {
      Object.assign(claim, { apiVersion: 'v1', kind: 'PersistentVolumeClaim' });
    }
    setAbsent(objectIn(spec, 'persistentVolumeClaimRetentionPolicy'), retention);
    setAbsent(spec, { replicas: 1, revisionHistoryLimit: 10 });
  },
  'apps.v1.ReplicaSet': (set) => setAbsent(objectIn(set, 'spec'), { replicas: 1 }),
  'batch.v1.Job'(job) {
    const spec = objectIn(job, 'spec');
    if (spec['completions'] === undefined && spec['parallelism'] === undefined) spec['completions'] = 1;
    setAbsent(spec, {
      parallelism: 1,
      backoffLimit: spec['backoffLimitPerIndex'] === undefined ? 6 : MAX_INT32,
      completionMode: 'NonIndexed',
      suspend: false,
      podReplacementPolicy: spec['podFailurePolicy'] === undefined ? 'TerminatingOrFailed' : 'Failed',
      manualSelector: false,
    });
    const template = spec['template'];
    const labels =
      isObject(template) && isObject(template['metadata']) ? template['metadata']['labels'] : null;
    const metadata = objectIn(job, 'metadata');
    const own = metadata['labels'];
    if (isObject(labels) && (!isObject(own) || Object.keys(own).length === 0)) {
      metadata['labels'] = { ...labels };
    }
  },
  'batch.v1.CronJob'(job) {
    const spec = objectIn(job, 'spec');
    spec['concurrencyPolicy'] ||= 'Allow';
    setAbsent(spec, { suspend: false, successfulJobsHistoryLimit: 3, failedJobsHistoryLimit: 1 });
  },
  'batch.v1.PodFailurePolicyOnPodConditionsPattern': (pattern) => {
    pattern['status'] ||= 'True';
  },
  'autoscaling.v2.HorizontalPodAutoscaler'(autoscaler) {
    const spec = objectIn(autoscaler, 'spec');
    setAbsent(spec, { minReplicas: 1 });
    if (listAt(spec as JsonObject, 'metrics').length === 0) {
      const target = { type: 'Utilization', averageUtilization: 80 };
      spec['metrics'] = [{ type: 'Resource', resource: { name: 'cpu', target } }];
    }
    const behavior = spec['behavior'];
    if (!isObject(behavior)) return;
    setAbsent(objectIn(behavior, 'scaleUp'), SCALE_UP);
    setAbsent(objectIn(behavior, 'scaleDown'), SCALE_DOWN);
  },
  'autoscaling.v1.HorizontalPodAutoscaler': (autoscaler) =>
    setAbsent(objectIn(autoscaler, 'spec'), { minReplicas: 1 }),
};

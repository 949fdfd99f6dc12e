import { DEFAULT_CLASS_ANNOTATION } from '../../kube/well-known-labels.ts';
import { type ApiObject, at, isObject, listAt, textAt } from '../object.ts';
import { columns, countAt, type Printer, since } from './printer.ts';

const ROLE_PREFIX = 'node-role.kubernetes.io/';

export const nodePrinter: Printer = {
  columns: columns(
    'Name; Status; Roles; Age; Version; Internal-IP|; External-IP|; OS-Image|; Kernel-Version|; Container-Runtime|',
  ),
  cells: (node, now) => [
    node.metadata.name,
    nodeStatus(node),
    nodeRoles(node).join(',') || '<none>',
    since(node.metadata.creationTimestamp, now),
    textAt(node, 'status', 'nodeInfo', 'kubeletVersion'),
    nodeAddress(node, 'InternalIP'),
    nodeAddress(node, 'ExternalIP'),
    textAt(node, 'status', 'nodeInfo', 'osImage') || '<unknown>',
    textAt(node, 'status', 'nodeInfo', 'kernelVersion') || '<unknown>',
    textAt(node, 'status', 'nodeInfo', 'containerRuntimeVersion') || '<unknown>',
  ],
};

function nodeStatus(node: ApiObject): string {
  const ready = listAt(node, 'status', 'conditions').find((condition) => condition['type'] === 'Ready');
  const word = !ready ? 'Unknown' : ready['status'] === 'True' ? 'Ready' : 'NotReady';
  return at(node, 'spec', 'unschedulable') === true ? `${word},SchedulingDisabled` : word;
}

function nodeRoles(node: ApiObject): string[] {
  const roles = new Set<string>();
  for (const [label, value] of Object.entries(node.metadata.labels ?? {})) {
    if (label.startsWith(ROLE_PREFIX)) roles.add(label.slice(ROLE_PREFIX.length));
    else if (label === 'kubernetes.io/role') roles.add(value);
  }
  roles.delete('');
  return [...roles].sort();
}

function nodeAddress(node: ApiObject, type: string): string {
  const address = listAt(node, 'status', 'addresses').find((one) => one['type'] === type);
  return textAt(address, 'address') || '<none>';
}

/** For core/v1 Event and events.k8s.io/v1 Event, whose fields have different names. */
export const eventPrinter: Printer = {
  columns: columns(
    'Last Seen; Type; Reason; Object; Subobject|; Source|; Message; First Seen|; Count|; Name|',
  ),
  cells(event, now) {
    const object = event['involvedObject'] ?? event['regarding'];
    const kind = textAt(object, 'kind').toLowerCase();
    const name = textAt(object, 'name');
    const source = event['source'] ?? event['deprecatedSource'];
    const first =
      textAt(event, 'firstTimestamp') ||
      textAt(event, 'deprecatedFirstTimestamp') ||
      textAt(event, 'eventTime');
    const last =
      textAt(event, 'series', 'lastObservedTime') ||
      textAt(event, 'lastTimestamp') ||
      textAt(event, 'deprecatedLastTimestamp') ||
      first;
    const component = textAt(source, 'component') || textAt(event, 'reportingComponent');
    const controller = component || textAt(event, 'reportingController');
    const instance = textAt(source, 'host') || textAt(event, 'reportingInstance');
    return [
      since(last, now),
      textAt(event, 'type'),
      textAt(event, 'reason'),
      name === '' ? kind : `${kind}/${name}`,
      textAt(object, 'fieldPath'),
      instance === '' ? controller : `${controller}, ${instance}`,
      (textAt(event, 'message') || textAt(event, 'note')).trim(),
      since(first, now),
      countAt(at(event, 'series', 'count')) ||
        countAt(event['count']) ||
        countAt(event['deprecatedCount']) ||
        1,
      event.metadata.name,
    ];
  },
};

export const namespacePrinter: Printer = {
  columns: columns('Name; Status; Age'),
  cells: (namespace, now) => [
    namespace.metadata.name,
    textAt(namespace, 'status', 'phase'),
    since(namespace.metadata.creationTimestamp, now),
  ],
};

export const secretPrinter: Printer = {
  columns: columns('Name; Type; Data; Age'),
  cells: (secret, now) => [
    secret.metadata.name,
    textAt(secret, 'type'),
    size(secret['data']),
    since(secret.metadata.creationTimestamp, now),
  ],
};

export const configMapPrinter: Printer = {
  columns: columns('Name; Data; Age'),
  cells: (map, now) => [
    map.metadata.name,
    size(map['data']) + size(map['binaryData']),
    since(map.metadata.creationTimestamp, now),
  ],
};

export const serviceAccountPrinter: Printer = {
  columns: columns('Name; Age'),
  cells: (account, now) => [account.metadata.name, since(account.metadata.creationTimestamp, now)],
};

export const leasePrinter: Printer = {
  columns: columns('Name; Holder; Age'),
  cells: (lease, now) => [
    lease.metadata.name,
    textAt(lease, 'spec', 'holderIdentity'),
    since(lease.metadata.creationTimestamp, now),
  ],
};

export const resourceQuotaPrinter: Printer = {
  columns: columns('Name; Request; Limit; Age'),
  cells(quota, now) {
    const hard = at(quota, 'status', 'hard');
    const used = at(quota, 'status', 'used');
    const lines = Object.entries(isObject(hard) ? hard : {})
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => `${name}: ${at(used, name) ?? '0'}/${value}`);
    return [
      quota.metadata.name,
      lines.filter((line) => !line.startsWith('limits.')).join(', '),
      lines.filter((line) => line.startsWith('limits.')).join(', '),
      since(quota.metadata.creationTimestamp, now),
    ];
  },
};

export const roleBindingPrinter: Printer = {
  columns: columns('Name; Role; Age; Users|; Groups|; ServiceAccounts|'),
  cells(binding, now) {
    const subjects = (kind: string) =>
      listAt(binding, 'subjects')
        .filter((subject) => subject['kind'] === kind)
        .map((subject) => (kind === 'ServiceAccount' ? `${subject['namespace']}/` : '') + subject['name'])
        .join(', ');
    return [
      binding.metadata.name,
      `${textAt(binding, 'roleRef', 'kind')}/${textAt(binding, 'roleRef', 'name')}`,
      since(binding.metadata.creationTimestamp, now),
      subjects('User'),
      subjects('Group'),
      subjects('ServiceAccount'),
    ];
  },
};

const ACCESS_MODES: readonly (readonly [mode: string, short: string])[] = [
  ['ReadWriteOnce', 'RWO'],
  ['ReadOnlyMany', 'ROX'],
  ['ReadWriteMany', 'RWX'],
  ['ReadWriteOncePod', 'RWOP'],
];

function accessModes(value: unknown): string {
  const modes = new Set<unknown>(Array.isArray(value) ? value : []);
  return ACCESS_MODES.filter(([mode]) => modes.has(mode))
    .map(([, short]) => short)
    .join(',');
}

function phase(object: ApiObject): string {
  return object.metadata.deletionTimestamp ? 'Terminating' : textAt(object, 'status', 'phase');
}

export const volumeClaimPrinter: Printer = {
  columns: columns(
    'Name; Status; Volume; Capacity; Access Modes; StorageClass; VolumeAttributesClass; Age; VolumeMode|',
  ),
  cells(claim, now) {
    const volume = textAt(claim, 'spec', 'volumeName');
    const bound = volume !== '';
    return [
      claim.metadata.name,
      phase(claim),
      volume,
      bound ? String(at(claim, 'status', 'capacity', 'storage') ?? '0') : '',
      bound ? accessModes(at(claim, 'status', 'accessModes')) : '',
      textAt(claim, 'spec', 'storageClassName'),
      textAt(claim, 'spec', 'volumeAttributesClassName') || '<unset>',
      since(claim.metadata.creationTimestamp, now),
      textAt(claim, 'spec', 'volumeMode') || '<unset>',
    ];
  },
};

export const volumePrinter: Printer = {
  columns: columns(
    'Name; Capacity; Access Modes; Reclaim Policy; Status; Claim; StorageClass; VolumeAttributesClass; Reason; Age; VolumeMode|',
  ),
  cells(volume, now) {
    const claim = at(volume, 'spec', 'claimRef');
    return [
      volume.metadata.name,
      String(at(volume, 'spec', 'capacity', 'storage') ?? '0'),
      accessModes(at(volume, 'spec', 'accessModes')),
      textAt(volume, 'spec', 'persistentVolumeReclaimPolicy'),
      phase(volume),
      isObject(claim) ? `${textAt(claim, 'namespace')}/${textAt(claim, 'name')}` : '',
      textAt(volume, 'spec', 'storageClassName'),
      textAt(volume, 'spec', 'volumeAttributesClassName') || '<unset>',
      textAt(volume, 'status', 'reason'),
      since(volume.metadata.creationTimestamp, now),
      textAt(volume, 'spec', 'volumeMode') || '<unset>',
    ];
  },
};

export const storageClassPrinter: Printer = {
  columns: columns('Name; Provisioner; ReclaimPolicy; VolumeBindingMode; AllowVolumeExpansion; Age'),
  cells(storageClass, now) {
    const annotations: Readonly<Record<string, string>> = storageClass.metadata.annotations ?? {};
    const isDefault = annotations[DEFAULT_CLASS_ANNOTATION] === 'true';
    return [
      `${storageClass.metadata.name}${isDefault ? ' (default)' : ''}`,
      textAt(storageClass, 'provisioner'),
      textAt(storageClass, 'reclaimPolicy') || 'Delete',
      textAt(storageClass, 'volumeBindingMode') || 'Immediate',
      storageClass['allowVolumeExpansion'] === true,
      since(storageClass.metadata.creationTimestamp, now),
    ];
  },
};

export const priorityClassPrinter: Printer = {
  columns: columns('Name; Value:integer; Global-Default:boolean; Age; PreemptionPolicy'),
  cells: (priorityClass, now) => [
    priorityClass.metadata.name,
    countAt(priorityClass['value']),
    priorityClass['globalDefault'] === true,
    since(priorityClass.metadata.creationTimestamp, now),
    textAt(priorityClass, 'preemptionPolicy'),
  ],
};

/** For kinds without further columns (roles, limit ranges): as upstream, shows the time of creation. */
export const plainPrinter: Printer = {
  columns: columns('Name; Created At:date'),
  cells: (object) => [object.metadata.name, object.metadata.creationTimestamp ?? ''],
};

function size(value: unknown): number {
  return isObject(value) ? Object.keys(value).length : 0;
}

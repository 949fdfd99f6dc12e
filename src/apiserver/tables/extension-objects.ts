import { type ApiObject, at, isObject, listAt, textAt } from '../object.ts';
import { humanDuration } from './human-duration.ts';
import { columns, countAt, type Printer, since } from './printer.ts';

/** Builds a printer with columns between the name and the age. */
function printer(line: string, cells: (object: ApiObject) => readonly unknown[]): Printer {
  return {
    columns: columns(`Name; ${line === '' ? '' : `${line}; `}Age`),
    cells: (object, now) => [
      object.metadata.name,
      ...cells(object),
      since(object.metadata.creationTimestamp, now),
    ],
  };
}

/** For kinds that show only their age. */
export const agePrinter: Printer = printer('', () => []);

export const certificateRequestPrinter: Printer = {
  columns: columns('Name; Age; SignerName; Requestor; RequestedDuration; Condition'),
  cells(request, now) {
    const seconds = at(request, 'spec', 'expirationSeconds');
    return [
      request.metadata.name,
      since(request.metadata.creationTimestamp, now),
      textAt(request, 'spec', 'signerName') || '<none>',
      textAt(request, 'spec', 'username'),
      typeof seconds === 'number' ? humanDuration(seconds * 1000) : '<none>',
      requestCondition(request),
    ];
  },
};

function requestCondition(request: ApiObject): string {
  const types = listAt(request, 'status', 'conditions').map(({ type }) => type);
  const decision = types.includes('Denied') ? 'Denied' : types.includes('Approved') ? 'Approved' : 'Pending';
  const failed = types.includes('Failed') ? ',Failed' : '';
  return `${decision}${failed}${textAt(request, 'status', 'certificate') === '' ? '' : ',Issued'}`;
}

export const csiDriverPrinter = printer(
  'AttachRequired:boolean; PodInfoOnMount:boolean; StorageCapacity:boolean; TokenRequests; RequiresRepublish:boolean; Modes',
  (driver) => {
    const tokens = at(driver, 'spec', 'tokenRequests');
    const modes = at(driver, 'spec', 'volumeLifecycleModes');
    return [
      at(driver, 'spec', 'attachRequired') !== false,
      at(driver, 'spec', 'podInfoOnMount') === true,
      at(driver, 'spec', 'storageCapacity') === true,
      Array.isArray(tokens) ? tokens.map((one) => textAt(one, 'audience')).join(',') : '<unset>',
      at(driver, 'spec', 'requiresRepublish') === true,
      (Array.isArray(modes) && modes.join(',')) || '<none>',
    ];
  },
);

export const csiNodePrinter = printer('Drivers:integer', (node) => [listAt(node, 'spec', 'drivers').length]);

const attachment = printer('Attacher; PV; Node; Attached:boolean', (object) => [
  textAt(object, 'spec', 'attacher'),
  textAt(object, 'spec', 'source', 'persistentVolumeName'),
  textAt(object, 'spec', 'nodeName'),
  at(object, 'status', 'attached') === true,
]);
export const volumeAttachmentPrinter: Printer = {
  ...attachment,
  columns: attachment.columns.map((one) => (one.name === 'Attacher' ? { ...one, format: 'name' } : one)),
};

export const volumeAttributesClassPrinter = printer('DriverName', (object) => [textAt(object, 'driverName')]);

export const webhookConfigurationPrinter = printer('Webhooks:integer', (configuration) => [
  listAt(configuration, 'webhooks').length,
]);

const policyPrinter = (column: string, field: string) =>
  printer(`${column}:integer; ParamKind`, (policy) => {
    const kind = at(policy, 'spec', 'paramKind');
    return [
      listAt(policy, 'spec', field).length,
      isObject(kind) ? `${textAt(kind, 'apiVersion')}/${textAt(kind, 'kind')}` : '<unset>',
    ];
  });
export const mutatingPolicyPrinter = policyPrinter('Mutations', 'mutations');
export const validatingPolicyPrinter = policyPrinter('Validations', 'validations');

/** Formats a label selector as Go prints the struct, as in upstream's column. */
function goSelector(selector: unknown): string {
  const labels = at(selector, 'matchLabels');
  const pairs = Object.entries(isObject(labels) ? labels : {}).sort(([a], [b]) => (a < b ? -1 : 1));
  const expressions = listAt(selector, 'matchExpressions').map(
    ({ key, operator, values }) =>
      `LabelSelectorRequirement{Key:${key},Operator:${operator},Values:[${Array.isArray(values) ? values.join(' ') : ''}],},`,
  );
  const map = pairs.map(([key, value]) => `${key}: ${value},`).join('');
  return `&LabelSelector{MatchLabels:map[string]string{${map}},MatchExpressions:[]LabelSelectorRequirement{${expressions.join('')}},}`;
}

export const policyBindingPrinter = printer('PolicyName; ParamRef', (binding) => {
  const reference = at(binding, 'spec', 'paramRef');
  const name = textAt(reference, 'name');
  const selector = at(reference, 'selector');
  const shown =
    name !== ''
      ? `${textAt(reference, 'namespace') || '*'}/${name}`
      : selector === undefined
        ? '<unset>'
        : goSelector(selector);
  return [textAt(binding, 'spec', 'policyName'), shown];
});

export const runtimeClassPrinter = printer('Handler', (object) => [textAt(object, 'handler')]);

export const resourceClaimPrinter = printer('State', (claim) => {
  const isDeleted = claim.metadata.deletionTimestamp !== undefined;
  const isAllocated = at(claim, 'status', 'allocation') !== undefined;
  const states = [
    ...(isDeleted ? ['deleted'] : []),
    ...(isAllocated ? ['allocated'] : isDeleted ? [] : ['pending']),
    ...(isAllocated && listAt(claim, 'status', 'reservedFor').length > 0 ? ['reserved'] : []),
  ];
  return [states.join(',')];
});

export const resourceSlicePrinter = printer('Node; Driver; Pool', (slice) => [
  textAt(slice, 'spec', 'nodeName'),
  textAt(slice, 'spec', 'driver'),
  textAt(slice, 'spec', 'pool', 'name'),
]);

export const flowSchemaPrinter: Printer = {
  columns: columns('Name; PriorityLevel; MatchingPrecedence; DistinguisherMethod; Age; MissingPL'),
  cells: (schema, now) => [
    schema.metadata.name,
    textAt(schema, 'spec', 'priorityLevelConfiguration', 'name'),
    countAt(at(schema, 'spec', 'matchingPrecedence')),
    textAt(schema, 'spec', 'distinguisherMethod', 'type') || '<none>',
    since(schema.metadata.creationTimestamp, now),
    listAt(schema, 'status', 'conditions').find(({ type }) => type === 'Dangling')?.['status'] ?? '?',
  ],
};

export const priorityLevelPrinter = printer(
  'Type; NominalConcurrencyShares; Queues; HandSize; QueueLengthLimit',
  (level) => {
    const queuing = at(level, 'spec', 'limited', 'limitResponse', 'queuing');
    return [
      textAt(level, 'spec', 'type'),
      at(level, 'spec', 'limited', 'nominalConcurrencyShares') ?? '<none>',
      ...['queues', 'handSize', 'queueLengthLimit'].map((field) => at(queuing, field) ?? '<none>'),
    ];
  },
);

import type { Kind } from '../kind.ts';
import { type ApiObject, at, equal, textAt } from '../object.ts';
import { type FieldError, invalid, required, tooLong } from '../status-error.ts';
import { nameProblems } from './names.ts';

const MAX_NOTE = 1024;

/** Immutable fields of an Event from events.k8s.io, which has stricter rules than an Event of the core group. */
const EVENT_IMMUTABLE = [
  'involvedObject',
  'reason',
  'message',
  'type',
  'eventTime',
  'reportingComponent',
  'reportingInstance',
  'action',
  'related',
];
/** Names of fields in refusals: those of the server's internal type. */
const EVENT_NAMES: Readonly<Record<string, string>> = { reportingComponent: 'reportingController' };
const MAX_EVENT_WORD = 128;

/**
 * Validates Events: those of events.k8s.io have their own rules and few mutable fields; those of v1 are as old clients
 * write them.
 */
export function validateEvent(event: ApiObject, before: ApiObject | null, requested: Kind): FieldError[] {
  return requested.group === '' ? validateCoreEvent(event) : validateNewEvent(event, before);
}

function validateCoreEvent(event: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const namespace = at(event, 'involvedObject', 'namespace') ?? '';
  const own = event.metadata.namespace ?? '';
  const matches = namespace === '' ? own === 'default' || own === 'kube-system' : namespace === own;
  if (!matches) errors.push(invalid('involvedObject.namespace', namespace, 'does not match event.namespace'));
  if (event['eventTime']) checkNewFields(event, errors);
  return errors;
}

function checkNewFields(event: ApiObject, errors: FieldError[]): void {
  for (const field of ['reportingComponent', 'reportingInstance', 'action', 'reason']) {
    if (!event[field]) errors.push(required(EVENT_NAMES[field] ?? field));
  }
  const type = event['type'];
  if (type !== 'Normal' && type !== 'Warning') errors.push(invalid('type', type ?? '', 'has invalid value'));
  if (String(event['message'] ?? '').length > MAX_NOTE) errors.push(tooLong('message', MAX_NOTE));
}

function validateNewEvent(event: ApiObject, before: ApiObject | null): FieldError[] {
  const errors: FieldError[] = [];
  if (!event['eventTime'] && !before) errors.push(required('eventTime'));
  checkNewFields(event, errors);
  const controller = textAt(event, 'reportingComponent');
  for (const problem of nameProblems(controller, 'qualified')) {
    errors.push(invalid('reportingController', controller, problem));
  }
  for (const field of ['reportingInstance', 'action', 'reason']) {
    if (textAt(event, field).length <= MAX_EVENT_WORD) continue;
    errors.push(invalid(field, '', `can have at most ${MAX_EVENT_WORD} characters`));
  }
  if (before) {
    for (const field of EVENT_IMMUTABLE) {
      if (equal(event[field], before[field])) continue;
      errors.push(invalid(EVENT_NAMES[field] ?? field, event[field] ?? '', 'field is immutable'));
    }
  }
  return errors;
}

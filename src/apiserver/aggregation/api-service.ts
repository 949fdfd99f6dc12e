import { timestamp } from '../../kube/timestamp.ts';
import { defineKind } from '../kind.ts';
import { type ApiObject, at, isObject, listAt, textAt } from '../object.ts';
import { type FieldError, invalid, required } from '../status-error.ts';
import { columns, type Printer, since } from '../tables/printer.ts';

const MAX_GROUP_PRIORITY = 20_000;
const MAX_VERSION_PRIORITY = 1000;

export interface ServiceReference {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
}

/** An APIService whose group and version are served by another server. */
export interface RemoteApi {
  /** "v1.example.com" */
  readonly name: string;
  readonly group: string;
  readonly version: string;
  readonly service: ServiceReference;
  /** PEM; null: the server's certificate is not verified (insecureSkipTLSVerify). */
  readonly authority: string | null;
  readonly isAvailable: boolean;
}

/** Returns null for an APIService that this server serves itself. */
export function remoteApi(object: ApiObject): RemoteApi | null {
  const service = at(object, 'spec', 'service');
  if (!isObject(service)) return null;
  const bundle = textAt(object, 'spec', 'caBundle');
  const isUnchecked = at(object, 'spec', 'insecureSkipTLSVerify') === true;
  const port = service['port'];
  return {
    name: object.metadata.name ?? '',
    group: textAt(object, 'spec', 'group'),
    version: textAt(object, 'spec', 'version'),
    service: {
      namespace: textAt(service, 'namespace'),
      name: textAt(service, 'name'),
      port: typeof port === 'number' ? port : 443,
    },
    authority: isUnchecked ? null : Buffer.from(bundle, 'base64').toString('utf8'),
    isAvailable: available(object)?.['status'] === 'True',
  };
}

const available = (object: ApiObject) =>
  listAt(object, 'status', 'conditions').find(({ type }) => type === 'Available');

const printer: Printer = {
  columns: columns('Name; Service; Available; Age'),
  cells(object, now) {
    const remote = remoteApi(object);
    const condition = available(object);
    const status = String(condition?.['status'] ?? 'Unknown');
    return [
      object.metadata.name,
      remote ? `${remote.service.namespace}/${remote.service.name}` : 'Local',
      status === 'True' ? status : `${status} (${String(condition?.['reason'] ?? '')})`,
      since(object.metadata.creationTimestamp, now),
    ];
  },
};

/** Validates an APIService like upstream's ValidateAPIService. */
function validate(object: ApiObject): FieldError[] {
  const errors: FieldError[] = [];
  const [group, version] = [textAt(object, 'spec', 'group'), textAt(object, 'spec', 'version')];
  const wanted = `${version}.${group}`;
  const { name = '' } = object.metadata;
  if (name !== wanted) {
    errors.push(
      invalid('metadata.name', name, `must be \`spec.version+"."+spec.group\`: ${JSON.stringify(wanted)}`),
    );
  }
  if (group === '' && version !== 'v1') {
    errors.push(required('spec.group', 'only v1 may have an empty group and it better be legacy kube'));
  }
  for (const [field, limit, text] of [
    ['groupPriorityMinimum', MAX_GROUP_PRIORITY, '20000'],
    ['versionPriority', MAX_VERSION_PRIORITY, '1000'],
  ] as const) {
    const value = Number(at(object, 'spec', field) ?? 0);
    if (value <= 0 || value > limit) {
      errors.push(invalid(`spec.${field}`, value, `must be positive and less than ${text}`));
    }
  }
  const hasBundle = textAt(object, 'spec', 'caBundle') !== '';
  const isUnchecked = at(object, 'spec', 'insecureSkipTLSVerify') === true;
  const service = at(object, 'spec', 'service');
  if (!isObject(service)) {
    if (hasBundle) {
      errors.push(
        invalid(
          'spec.caBundle',
          textAt(object, 'spec', 'caBundle'),
          'local APIServices may not have a caBundle',
        ),
      );
    }
    if (isUnchecked) {
      errors.push(
        invalid('spec.insecureSkipTLSVerify', true, 'local APIServices may not have insecureSkipTLSVerify'),
      );
    }
    return errors;
  }
  for (const field of ['namespace', 'name']) {
    if (textAt(service, field) === '') errors.push(required(`spec.service.${field}`));
  }
  const port = Number(service['port'] ?? 443);
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    const detail = 'port is not valid: must be between 1 and 65535, inclusive';
    errors.push(invalid('spec.service.port', port, detail));
  }
  if (isUnchecked && hasBundle) {
    errors.push(invalid('spec.insecureSkipTLSVerify', true, 'may not be true if caBundle is present'));
  }
  return errors;
}

/** The kind whose objects name the server of each group and version. */
export const API_SERVICE_KIND = defineKind('apiregistration.k8s.io/v1', 'APIService', 'apiservices', {
  namespaced: false,
  categories: ['api-extensions'],
  status: true,
  generationFields: [],
  names: 'path',
  needsVersion: true,
  printer,
  validate,
  prepareCreate(object, { now }) {
    const lastTransitionTime = timestamp(now.getTime());
    object['status'] = {
      conditions: isObject(at(object, 'spec', 'service'))
        ? []
        : [
            {
              type: 'Available',
              status: 'True',
              lastTransitionTime,
              reason: 'Local',
              message: 'Local APIServices are always available',
            },
          ],
    };
  },
});

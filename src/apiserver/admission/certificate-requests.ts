import { timestamp } from '../../kube/timestamp.ts';
import { parseCertificateRequest } from '../../lib/certificate-request.ts';
import type { Clock } from '../../lib/clock.ts';
import { isObject, listAt, textAt } from '../object.ts';
import type { AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

const GROUP = 'certificates.k8s.io';
const CLIENT_SIGNER = 'kubernetes.io/kube-apiserver-client';
const NAMES = { group: GROUP, kind: 'CertificateSigningRequest', plural: 'certificatesigningrequests' };

/**
 * Records the requester of a certificate, validates the request, keeps its spec immutable and sets the times of its
 * conditions (upstream's strategy for the kind, and CertificateSubjectRestriction).
 */
export function createCertificateRequests(clock: Clock): AdmissionPlugin {
  return {
    name: 'CertificateSubjectRestriction',
    handles: ({ resource, operation }) =>
      resource.group === GROUP &&
      resource.resource === NAMES.plural &&
      (operation === 'CREATE' || operation === 'UPDATE'),
    mutate({ object, oldObject, user, subresource }) {
      if (!object) return;
      if (oldObject) object['spec'] = oldObject['spec'];
      else {
        const extra =
          user.extra && Object.fromEntries(Object.entries(user.extra).map(([key, list]) => [key, [...list]]));
        const { uid: _uid, extra: _extra, ...spec } = isObject(object['spec']) ? object['spec'] : {};
        object['spec'] = {
          ...spec,
          username: user.name,
          groups: [...user.groups],
          ...(user.uid ? { uid: user.uid } : {}),
          ...(extra ? { extra } : {}),
        };
      }
      if (subresource === 'approval' || subresource === 'status') {
        const now = timestamp(clock.now());
        for (const condition of listAt(object, 'status', 'conditions')) {
          condition['lastUpdateTime'] ??= now;
          condition['lastTransitionTime'] ??= now;
        }
      }
    },
    validate(attributes) {
      const { object, operation } = attributes;
      if (!object || operation !== 'CREATE') return;
      const { spec } = object;
      const request = parseCertificateRequest(
        Buffer.from(textAt(spec, 'request'), 'base64').toString('utf8'),
      );
      if (textAt(spec, 'signerName') !== CLIENT_SIGNER) return;
      if (!request.organizations.includes('system:masters')) return;
      throw admissionForbidden(
        attributes,
        `use of ${CLIENT_SIGNER} signer with system:masters group is not allowed`,
      );
    },
  };
}

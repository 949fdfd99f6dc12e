import type { AuthorizationAttributes, Authorizer } from '../authorization/authorizer.ts';
import { at, equal, textAt } from '../object.ts';
import type { AdmissionAttributes, AdmissionPlugin } from './plugin.ts';
import { admissionForbidden } from './refusal.ts';

const GROUP = 'certificates.k8s.io';

/**
 * Lets a user approve or sign requests for a signer only with the respective verb on that signer (CertificateApproval,
 * CertificateSigning).
 */
export function createCertificatePlugins(authorizer: Authorizer): AdmissionPlugin[] {
  return [
    {
      name: 'CertificateApproval',
      handles: (attributes) => isRequest(attributes, 'approval'),
      async validate(attributes) {
        const signer = textAt(attributes.oldObject, 'spec', 'signerName');
        if (await mayUse(authorizer, attributes, 'approve', signer)) return;
        throw admissionForbidden(
          attributes,
          `user not permitted to approve requests with signerName ${JSON.stringify(signer)}`,
        );
      },
    },
    {
      name: 'CertificateSigning',
      handles: (attributes) => isRequest(attributes, 'status'),
      async validate(attributes) {
        const { object, oldObject } = attributes;
        const conditions = (of: unknown) => at(of, 'status', 'conditions') ?? [];
        const same =
          equal(at(object, 'status', 'certificate'), at(oldObject, 'status', 'certificate')) &&
          equal(conditions(object), conditions(oldObject));
        if (same) return;
        const signer = textAt(oldObject, 'spec', 'signerName');
        if (await mayUse(authorizer, attributes, 'sign', signer)) return;
        throw admissionForbidden(
          attributes,
          `user not permitted to sign requests with signerName ${JSON.stringify(signer)}`,
        );
      },
    },
  ];
}

const isRequest = ({ operation, resource, subresource }: AdmissionAttributes, wanted: string) =>
  operation === 'UPDATE' &&
  resource.group === GROUP &&
  resource.resource === 'certificatesigningrequests' &&
  subresource === wanted;

/** Reports whether the user has the verb on the signer or on its whole domain ("example.com/*"). */
async function mayUse(
  authorizer: Authorizer,
  { user }: AdmissionAttributes,
  verb: string,
  signer: string,
): Promise<boolean> {
  for (const name of [signer, `${signer.split('/')[0]}/*`]) {
    const attributes: AuthorizationAttributes = {
      user,
      verb,
      isResourceRequest: true,
      apiGroup: GROUP,
      apiVersion: '*',
      resource: 'signers',
      subresource: '',
      namespace: '',
      name,
      path: '',
    };
    if ((await authorizer.authorize(attributes)).verdict === 'allow') return true;
  }
  return false;
}

import { createEventRecorder } from '../../kube/events.ts';
import type { Informer } from '../../kube/informer.ts';
import { readContext } from '../../kube/kubeconfig.ts';
import { type Node, RESOURCES } from '../../kube/types.ts';
import { FairleadError } from '../../lib/errors.ts';
import { createAuthority, type KeyedCertificate } from '../../lib/pki.ts';
import type { KubeletOptions } from '../../runtime/options.ts';
import type { PodsConfiguration } from '../agent-configuration.ts';
import type { AgentContext } from '../agent-context.ts';
import { type CertificateKeeper, keepCertificate } from './certificate-keeper.ts';
import { canonicalName } from './certificate-store.ts';
import { logWaiting, nodeTerms, servingStore } from './node-identity.ts';
import type { CertificateTerms } from './renewal.ts';
import { obtainCertificate } from './signing-request.ts';
import { followTlsFiles } from './tls-files.ts';

/**
 * Returns the certificate of the node's HTTPS server, and the authority of its clients: from the configured files, from the
 * cluster's signer (serverTLSBootstrap), or self-signed. `own`: this machine's Node.
 */
export function servingOptions(
  context: AgentContext,
  pods: PodsConfiguration,
  own: Informer<Node>,
): KubeletOptions['server'] {
  const { port, tls, serverTLSBootstrap } = pods;
  const hasFiles = !serverTLSBootstrap && (tls.cert !== '' || tls.key !== '');
  const followed = followTlsFiles({
    ...context,
    files: {
      ...(hasFiles ? { cert: tls.cert, key: tls.key } : {}),
      ...(tls.clientCa === '' ? {} : { clientCa: tls.clientCa }),
    },
  });
  context.onClose(() => followed.close());
  const { cert, key, onRenewal } = serverTLSBootstrap
    ? requestedCertificate(context, own)
    : { ...(hasFiles ? NONE : selfSigned(context, pods.nodeAddresses)), onRenewal: null };
  return {
    port,
    ...{ cert, key, clientCa: tls.clientCa === '' ? clusterAuthority(context) : '' },
    ...followed.current,
    onChange(listener) {
      followed.onChange(listener);
      onRenewal?.((pair) => listener({ cert: pair.cert, key: pair.key }));
    },
  };
}

const NONE: KeyedCertificate = { cert: '', key: '' };

/** Returns the authority of the API server, which signs its client certificate too unless a cluster has several. */
function clusterAuthority({ configuration }: AgentContext): string {
  const { ca } = configuration.kubeconfig ? readContext(configuration.kubeconfig).credentials : {};
  if (ca !== undefined) return ca;
  throw new FairleadError('pods.clientCA is not configured, and the kubeconfig has no authority', {
    op: 'serve the API server',
    code: 'bad-config',
    hint: 'set pods.clientCA to the file of the authority that signs client certificates',
  });
}

/** The certificate of a server that clients do not verify, as the kubelet makes it at a start. */
function selfSigned({ configuration, clock }: AgentContext, addresses: readonly string[]): KeyedCertificate {
  const { nodeName } = configuration;
  const names = [nodeName, ...addresses];
  const authority = createAuthority(`${nodeName}-ca`, new Date(clock.now()));
  return authority.issue({ commonName: nodeName, names, usage: 'server' });
}

/** Returns what the certificate of a node's server is for: its names and addresses; null: it has none yet. */
export function servingTerms(nodeName: string, node: Node | undefined): CertificateTerms | null {
  const types = ['Hostname', 'InternalDNS', 'ExternalDNS', 'InternalIP', 'ExternalIP'];
  const names = (node?.status?.addresses ?? [])
    .filter(({ type }) => types.includes(type))
    .map(({ address }) => canonicalName(address));
  return names.length === 0 ? null : nodeTerms(nodeName, [...new Set(names)].sort());
}

function requestedCertificate(
  context: AgentContext,
  own: Informer<Node>,
): KeyedCertificate & Pick<CertificateKeeper, 'onRenewal'> {
  const { configuration, client, clock, logger, signal } = context;
  const { nodeName, stateDir } = configuration;
  const events = createEventRecorder({ ...context, component: 'kubelet', host: nodeName });
  const event = (type: 'Normal' | 'Warning', reason: string, message: string) => {
    const node = own.get(nodeName);
    if (node) events.event(node, type, reason, message, RESOURCES.nodes);
  };
  const keeper = keepCertificate({
    ...context,
    what: 'serving certificate',
    store: servingStore(stateDir),
    terms: () => servingTerms(nodeName, own.get(nodeName)),
    onProblem(problem) {
      if (problem === null) return;
      logger.warn({}, problem);
      event('Warning', 'NoServingCertificate', problem);
    },
    obtain: (terms, key, ended) =>
      obtainCertificate({
        ...{ client, clock, logger, random: context.random },
        signer: 'serving',
        terms,
        key,
        name: null,
        onWaiting(name) {
          logWaiting(logger, name);
          event('Normal', 'ServingCertificateRequested', `kubectl certificate approve ${name}`);
        },
        signal: AbortSignal.any([signal, ended]),
      }),
  });
  const look = ({ metadata }: Node) => {
    if (metadata?.name === nodeName) keeper.recheck();
  };
  context.onClose(own.handle({ onAdd: look, onUpdate: look }));
  const { cert = '', key = '' } = keeper.current() ?? {};
  return { cert, key, onRenewal: keeper.onRenewal };
}

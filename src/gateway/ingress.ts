import type { GatewayFindings } from './findings.ts';
import { compareHosts, readHostname } from './host-pattern.ts';
import { hostTables, tooManyRows } from './host-tables.ts';
import { compareAge, identityOf, keyOf } from './identity.ts';
import { readIngressSettings } from './ingress-annotations.ts';
import { addCanary } from './ingress-canary.ts';
import { classOf, ownIngressClasses } from './ingress-class.ts';
import { type IngressPath, ingressRows } from './ingress-rows.ts';
import { type IngressContext, type KnownIngress, subject } from './known-ingress.ts';
import type { GatewayObject, GatewayObjects } from './objects.ts';
import { matchKey, type PreparedRow, prepareRows, rowsByListener } from './placed-rows.ts';
import { list, record, show, text } from './raw.ts';
import type { CertificateKey, GatewayPlan, HostPattern, PortPlan, TlsListener } from './route-map.ts';

const HTTP_PORT = 80;
const HTTPS_PORT = 443;

/**
 * Translates the Ingresses of our classes. All of one class share a gateway, and rules for the same host are merged: of two
 * Ingresses with the same host and path, the older keeps it.
 */
export function ingressPlans(objects: GatewayObjects, context: IngressContext): readonly GatewayPlan[] {
  const classes = ownIngressClasses(objects.ingressClasses);
  const byClass = new Map<string, KnownIngress[]>();
  for (const object of objects.ingresses) {
    const identity = identityOf(object);
    const name = classOf(object, classes);
    if (!identity || name === null) continue;
    const settings = readIngressSettings(object, ({ annotation, problem }) =>
      context.findings.add(
        subject(identity),
        'InvalidAnnotation',
        `metadata.annotations[${annotation}]: ${problem}`,
      ),
    );
    const ingress = { object, identity, settings, tlsHosts: tlsHostsOf(object) };
    const known = byClass.get(name);
    if (known) known.push(ingress);
    else byClass.set(name, [ingress]);
  }
  return [...byClass].map(([name, ingresses]) => classPlan(name, ingresses, objects.certificates, context));
}

function classPlan(
  name: string,
  ingresses: KnownIngress[],
  certificates: GatewayObjects['certificates'],
  context: IngressContext,
): GatewayPlan {
  ingresses.sort((a, b) => compareAge(a.identity, b.identity));
  const paths: IngressPath[] = [];
  for (const ingress of ingresses) if (!ingress.settings.canary) paths.push(...ingressRows(ingress, context));
  reportTaken(paths, context.findings);
  for (const ingress of ingresses)
    if (ingress.settings.canary) addCanary(paths, ingress, ingressRows(ingress, context), context.findings);
  const secure = secureHosts(ingresses, certificates, context.findings);
  const plain = hostTables(placedRows(paths, false), '', 1);
  if (plain.cutAt !== null)
    context.findings.add(
      { kind: 'IngressClass', namespace: '', name },
      'TooManyRows',
      tooManyRows('the Ingresses of this class', plain.cutAt),
    );
  const ports: PortPlan[] = [
    { kind: 'http', port: HTTP_PORT, listeners: [{ name: 'http', hostname: '', hosts: plain.tables }] },
  ];
  if (secure.length > 0)
    ports.push({ kind: 'tls', port: HTTPS_PORT, listeners: tlsListeners(secure, placedRows(paths, true)) });
  return { key: `ingress/${name}`, addresses: [], ports };
}

/** Returns the rows of one port: with TLS, or without, where some redirect to it. */
function placedRows(paths: readonly IngressPath[], secure: boolean): readonly PreparedRow[] {
  return prepareRows(paths.flatMap((path) => (secure ? path.rows : (path.redirect ?? path.rows))));
}

/** Reports the paths that an older Ingress has already. */
function reportTaken(paths: readonly IngressPath[], findings: GatewayFindings): void {
  const owners = new Map<string, IngressPath>();
  for (const path of paths) {
    if (path.isDefault) continue;
    for (const { hostname, row } of path.rows) {
      const key = `${hostname} ${matchKey(row)}`;
      const owner = owners.get(key);
      if (!owner) owners.set(key, path);
      else if (keyOf(owner.identity) !== keyOf(path.identity))
        findings.add(
          subject(path.identity),
          'PathInUse',
          `${path.field}: ${hostname || 'every host'} ${path.shown} belongs to another Ingress, which is older: ` +
            'use another host or path',
        );
    }
  }
}

/** The hosts of `spec.tls`; an entry without hosts is for every host. */
function tlsHostsOf(object: GatewayObject): readonly HostPattern[] {
  return list(record(object.spec)['tls']).flatMap((item) => {
    const hosts = list(record(item)['hosts']);
    if (hosts.length === 0) return [''];
    return hosts.map((host) => readHostname(text(host))).filter((host) => host !== null);
  });
}

interface SecureHost {
  readonly hostname: HostPattern;
  readonly certificate: CertificateKey;
}

/** Returns the certificate of each host: that of the oldest Ingress which names one for it. */
function secureHosts(
  ingresses: readonly KnownIngress[],
  certificates: GatewayObjects['certificates'],
  findings: GatewayFindings,
): readonly SecureHost[] {
  const hosts = new Map<HostPattern, SecureHost>();
  for (const { object, identity } of ingresses) {
    for (const [index, item] of list(record(object.spec)['tls']).entries()) {
      const field = `spec.tls[${index}]`;
      const report = (reason: string, message: string) =>
        findings.add(subject(identity), reason, `${field}${message}`);
      const entry = record(item);
      const secret = text(entry['secretName']);
      if (secret === '') {
        report('NoCertificate', '.secretName: is empty: name a Secret of type kubernetes.io/tls');
        continue;
      }
      const certificate = keyOf({ namespace: identity.namespace, name: secret });
      const problem = certificates.get(certificate);
      if (problem !== null) {
        report('NoCertificate', `.secretName: Secret ${certificate} ${problem ?? 'does not exist'}`);
        continue;
      }
      const names = list(entry['hosts']);
      for (const name of names.length === 0 ? [''] : names) {
        const hostname = name === '' ? '' : readHostname(text(name));
        if (hostname === null) {
          report('InvalidHost', `.hosts: ${show(name)} is not a DNS name`);
          continue;
        }
        const known = hosts.get(hostname);
        if (!known) hosts.set(hostname, { hostname, certificate });
        else if (known.certificate !== certificate)
          report(
            'HostInUse',
            `.hosts: ${hostname || 'every host'} has the certificate of another Ingress, which is older: remove it from one`,
          );
      }
    }
  }
  return [...hosts.values()].sort((a, b) => compareHosts(a.hostname, b.hostname));
}

function tlsListeners(secure: readonly SecureHost[], placed: readonly PreparedRow[]): readonly TlsListener[] {
  const rowsOf = rowsByListener(placed);
  return secure.map(({ hostname, certificate }) => ({
    kind: 'https',
    name: hostname === '' ? 'https' : `https-${hostname}`,
    hostname,
    tls: { certificates: [certificate], minVersion: '1.2', clients: null },
    hosts: hostTables(rowsOf(hostname), hostname, secure.length).tables,
  }));
}

import { type ConntrackSettings, DEFAULT_CONNTRACK } from '../proxy/conntrack-settings.ts';
import type { FieldReader } from './field-reader.ts';

/** Reads `conntrack`, which has the fields of KubeProxyConfiguration. */
export function readConntrack(parent: FieldReader): ConntrackSettings {
  return parent.object('conntrack', (reader) => ({
    maxPerCore: reader.number('maxPerCore', DEFAULT_CONNTRACK.maxPerCore, 0, 2 ** 31 - 1),
    min: reader.number('min', DEFAULT_CONNTRACK.min, 0, 2 ** 31 - 1),
    tcpEstablishedTimeoutMs: reader.duration(
      'tcpEstablishedTimeout',
      DEFAULT_CONNTRACK.tcpEstablishedTimeoutMs,
    ),
    tcpCloseWaitTimeoutMs: reader.duration('tcpCloseWaitTimeout', DEFAULT_CONNTRACK.tcpCloseWaitTimeoutMs),
    tcpBeLiberal: reader.flag('tcpBeLiberal', DEFAULT_CONNTRACK.tcpBeLiberal),
    udpTimeoutMs: reader.duration('udpTimeout', DEFAULT_CONNTRACK.udpTimeoutMs),
    udpStreamTimeoutMs: reader.duration('udpStreamTimeout', DEFAULT_CONNTRACK.udpStreamTimeoutMs),
  }));
}

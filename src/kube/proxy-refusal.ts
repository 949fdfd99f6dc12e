import { FairleadError } from '../lib/errors.ts';

/** Returns the error of a proxy that does not connect to `target`, "api.example:6443". */
export function proxyRefusal(proxy: URL, target: string, why: string): FairleadError {
  return new FairleadError(`the proxy ${proxy.host} refuses a connection to ${target}: ${why}`, {
    op: 'connect to API server',
    code: 'refused-by-proxy',
    hint: 'check proxy-url in the kubeconfig, or the variables HTTPS_PROXY and NO_PROXY',
  });
}
